/** What the view says in words: errors, emptiness, and the selection for a screen reader. */
import { outcome } from './branches';
import { h } from './dom';
import { formatBytes, formatNumber, formatSeconds, plural, shorten } from './format';
import { outputGradient } from './gradients';
import { isInside, type Item } from './groups';
import type { GraphState } from './state';
import { normText, stepName } from './step-colours';
import { isOperation } from './operations';
import { nameOf } from './tree-panel';

/** Shows an error in a box over what still works, or what to do while there is nothing. */
export function showMessage(
  element: HTMLElement,
  error: string | null,
  drawn: boolean,
  empty: string,
): void {
  element.hidden = error === null && drawn;
  element.style.pointerEvents = drawn ? 'none' : '';
  if (error === null) {
    element.replaceChildren(h('p', {}, drawn ? '' : empty));
    return;
  }
  const title = h('b', {}, 'The graph could not be shown');
  element.replaceChildren(
    h('div', { class: 'wv-error', role: 'alert' }, title, shorten(error, 2000)),
  );
}

/** What a screen reader says about an item: its bytes, then what the drawing is coloured by. */
export function describe(state: GraphState, item: Item): string {
  const where = state.path(item).slice(1).map(nameOf).join(', ');
  const chip = isOperation(item) ? '' : state.unreached.chip(item);
  const test = isOperation(item) && item.test;
  const parts = !isOperation(item)
    ? [item.title, plural(item.end - item.start, 'operation')]
    : [test ? `${item.op} is ${outcome(test)}` : `${item.op} ${item.shape}`];
  if (!isInside(item)) parts.push(`${formatBytes(item.saved)} saved`);
  if (!test) parts.push(coloured(state, item), chip);
  if (isOperation(item) && where) parts.push(`in ${where}`);
  return shorten(parts.filter(Boolean).join(', '), 300);
}

function coloured(state: GraphState, item: Item): string {
  const { colours } = state;
  if (colours) {
    const found = colours.normOf(item, state);
    return found ? `gradient norm ${normText(found.norm)} at ${stepName(colours)}` : '';
  }
  if (state.colouring === 'time')
    return item.seconds === null ? '' : `forward ${formatSeconds(item.seconds)}`;
  if (state.colouring !== 'gradient') return '';
  const gradient = outputGradient(item, state.operations);
  if (!gradient) return isInside(item) ? '' : 'backward did not run';
  if (gradient.nonFinite > 0)
    return plural(gradient.nonFinite, 'value not finite', 'values not finite');
  return `gradient norm ${formatNumber(gradient.norm)}`;
}
