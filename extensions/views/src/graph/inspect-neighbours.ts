/** Where an item's values come from and go to, as links. */
import { aside, h, note, section } from './dom';
import type { Drawing } from './drawing';
import { shorten } from './format';
import type { Item } from './groups';
import { itemLink } from './inspector';
import { isOperation } from './operations';
import { nameOf } from './tree-panel';

/** The operations and modules that an item got its values from, and those it gave its own to. */
export function neighbours(state: Drawing, item: Item, select: (item: Item) => void): HTMLElement {
  const { before, after } = state.neighbours(item);
  const list = h('div', {});
  const add = (label: string, items: Item[]): void => {
    for (const other of items.filter((one) => !isOperation(one) || !one.test).slice(0, 8)) {
      const where = state.path(other).slice(1).map(nameOf).join(' › ');
      const note = aside(`${label} `);
      list.append(h('p', {}, note, itemLink(other, select), ` ${shorten(where, 60)}`));
    }
    if (items.length > 8) list.append(note(`and ${items.length - 8} more`));
  };
  add('from', before);
  add('to', after);
  return section('Data flow', '', list);
}
