/** Lines at the edges of the drawing: the first value that is not finite, and what is lit. */
import { button, h, sentence } from './dom';
import type { Item } from './groups';
import type { Drawing } from './drawing';

/** Says which node made the first value that is not finite; hidden where all are. */
export function showNonFinite(
  element: HTMLElement,
  state: Drawing | null,
  select: (item: Item) => void,
  key: string,
): void {
  const found = state?.record.non_finite;
  element.hidden = !found;
  if (!state || !found) return;
  const line = h('span', 'text', ...sentence(found.text));
  element.replaceChildren(h('span', { 'aria-hidden': 'true' }, '⚠'), line);
  const operation = state.firstNonFinite;
  if (operation) element.append(button('Show the node', () => select(operation), {}, key));
}

/** Says what is lit, and how to see everything again. */
export function showLit(element: HTMLElement, state: Drawing | null, clear: () => void): void {
  element.hidden = !state?.highlight;
  element.replaceChildren();
  if (!state?.highlight) return;
  const line = h('span', 'text', state.litText());
  element.replaceChildren(line, button('Show all again', clear, {}, 'Esc'));
}
