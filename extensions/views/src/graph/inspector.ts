/** Everything known about the selection, on the right. */
import { h, link, renew } from './dom';
import type { Drawing } from './drawing';
import { formatBytes, shorten } from './format';
import type { Item } from './groups';
import { isOperation, type Operation } from './operations';
import { nameOf } from './tree-panel';

/** Fills the inspector with the parts of a page. */
export function inspect(element: HTMLElement, parts: readonly Node[]): void {
  if (renew(element, parts)) return;
  // What was searched for may be far down: a parameter in the list of those without a gradient.
  element.querySelector('[data-found]')?.scrollIntoView?.({ block: 'center' });
}

/** Path, name and a note: the top of every page. */
export function head(state: Drawing, item: Item, title: string, note: string): HTMLElement {
  const path = state.path(item).map(nameOf).join(' › ');
  return h(
    'section',
    'wv-sec',
    h('div', 'wv-note', shorten(path, 160)),
    h('h2', { title: shorten(title, 1000) }, shorten(title, 120)),
    h('div', 'wv-note', shorten(note, 80)),
  );
}

/** A name that selects what it names. */
export function itemLink(item: Item, select: (item: Item) => void, limit = 40): HTMLElement {
  const name = isOperation(item) ? item.op : item.title;
  return link(shorten(name, limit), () => select(item));
}

export interface Cell {
  text?: string;
  title?: string;
  node?: Node;
}

/** Call, module and bytes of an operation, as a row of a table. */
export function operationRow(
  { record }: Drawing,
  operation: Operation,
  bytes: number,
  select: (item: Item) => void,
): (string | Cell)[] {
  const path = record.modules[operation.module]?.path ?? '';
  return [
    { node: itemLink(operation, select, 16), title: operation.op },
    { text: shorten(path, 18), title: path },
    formatBytes(bytes),
  ];
}

/** A table of short texts; each keeps its whole text as a tooltip. */
export function table(
  headings: readonly string[],
  rows: readonly (string | Cell)[][],
): HTMLElement {
  const body = h('tbody', {});
  for (const row of rows) {
    const line = h('tr', {});
    for (const value of row) {
      const { text = '', title = text, node } = typeof value === 'string' ? { text: value } : value;
      const cell = h('td', { title: shorten(title, 300) || null });
      cell.append(node ?? shorten(text, 44));
      line.append(cell);
    }
    body.append(line);
  }
  const top = h('tr', {}, ...headings.map((text) => h('th', { scope: 'col' }, text)));
  return h('table', {}, headings.length > 0 ? h('thead', {}, top) : null, body);
}
