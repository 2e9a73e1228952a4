/** Lines at the edges of the drawing: the first value that is not finite, and what is lit. */
import { button, h } from './dom';
import { oneLine, plural } from './format';
import type { Item } from './groups';
import { parametersOf } from './highlight';
import type { GraphState } from './state';
import { nameOf } from './tree-panel';

/** Says which node made the first value that is not finite; hidden where all are. */
export function showNonFinite(
  element: HTMLElement,
  state: GraphState | null,
  select: (item: Item) => void,
): void {
  const found = state?.record.non_finite;
  element.hidden = !found;
  if (!state || !found) return;
  const text = oneLine(found.text.slice(0, 600));
  const line = h('span', { class: 'text' }, text);
  element.replaceChildren(h('span', { 'aria-hidden': 'true' }, '⚠'), line);
  const operation = state.firstNonFinite;
  if (operation) element.append(button('Show the node', () => select(operation), {}, 'N'));
}

/** Says what is lit, and how to see everything again. */
export function showLit(element: HTMLElement, state: GraphState | null, clear: () => void): void {
  const highlight = state?.highlight;
  element.hidden = !highlight;
  element.replaceChildren();
  if (!state || !highlight) return;
  const name = oneLine(nameOf(highlight.from).slice(0, 80));
  const text =
    highlight.kind === 'path'
      ? `Path of the gradient from ${name} to ${plural(parametersOf(highlight, state.operations).length, 'parameter')}`
      : `${plural(highlight.lit.size, 'operation holds', 'operations hold')} what ${name} holds for backward`;
  const line = h('span', { class: 'text' }, text);
  element.replaceChildren(line, button('Show all again', clear, {}, 'Esc'));
}
