/** What the view says in words: errors, emptiness, and the selection for a screen reader. */
import { h } from './dom';
import { formatBytes, plural, shorten } from './format';
import type { Item } from './groups';
import type { GraphState } from './state';
import { nameOf } from './tree-panel';

const EMPTY = 'No graph yet. Capture a step, or call wb.graph(loss) in a cell.';

/** Shows an error as a card over what still works, or what to do while there is nothing. */
export function showMessage(element: HTMLElement, error: string | null, drawn: boolean): void {
  element.hidden = error === null && drawn;
  element.style.pointerEvents = drawn ? 'none' : '';
  if (error === null) {
    element.replaceChildren(h('p', {}, drawn ? '' : EMPTY));
    return;
  }
  const title = h('b', {}, 'The graph could not be shown');
  element.replaceChildren(
    h('div', { class: 'wv-card', role: 'alert' }, title, shorten(error, 2000)),
  );
}

/** What a screen reader says about an item. */
export function describe(state: GraphState, item: Item): string {
  const where = state.path(item).slice(1).map(nameOf).join(', ');
  const bytes = `${formatBytes(item.saved)} saved`;
  if (item.kind === 'operation')
    return shorten(`${item.op} ${item.shape}, ${bytes}${where ? `, in ${where}` : ''}`, 300);
  return shorten(`${item.title}, ${plural(item.end - item.start, 'operation')}, ${bytes}`, 300);
}
