/** A line above the drawing: the first value that is not finite, and what is lit. */
import { button, h } from './dom';
import { oneLine, plural } from './format';
import type { Item } from './groups';
import { parametersOf } from './highlight';
import { samplesOf } from './inspect-capture';
import type { GraphState } from './state';
import { nameOf } from './tree-panel';

/** Fills the banner; hidden while there is nothing to say. */
export function showBanner(
  element: HTMLElement,
  state: GraphState | null,
  select: (item: Item) => void,
  clear: () => void,
): void {
  const lines = state ? [nonFinite(state, select), lit(state, clear)] : [];
  const shown = lines.filter((line) => line !== null);
  element.hidden = shown.length === 0;
  element.replaceChildren(...shown);
}

function nonFinite(state: GraphState, select: (item: Item) => void): HTMLElement | null {
  const found = state.record.non_finite;
  if (!found) return null;
  const line = h('div', { class: 'bad', role: 'alert' }, h('span', { 'aria-hidden': 'true' }, '⚠'));
  const text = oneLine(found.text.slice(0, 600));
  const samples = found.samples.length > 0 ? ` ${samplesOf(found.samples.slice(0, 8))}` : '';
  line.append(h('span', { class: 'text' }, text + samples));
  const operation = state.operationOf(found.node);
  if (operation) line.append(button('Show the node', () => select(operation), {}, 'N'));
  return line;
}

function lit(state: GraphState, clear: () => void): HTMLElement | null {
  const { highlight } = state;
  if (!highlight) return null;
  const name = oneLine(nameOf(highlight.from).slice(0, 80));
  const text =
    highlight.kind === 'path'
      ? `Path of the gradient from ${name} to ${plural(parametersOf(highlight, state.operations).length, 'parameter')}.`
      : `${plural(highlight.lit.size, 'operation')} hold what ${name} holds for backward.`;
  const line = h('div', { role: 'status' }, h('span', { class: 'text' }, text));
  line.append(button('Show all again', clear, {}, 'Esc'));
  return line;
}
