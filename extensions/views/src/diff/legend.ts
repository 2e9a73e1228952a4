/** What outlines, signs and lines mean, in the corner of the drawing. */
import { h } from '../graph/dom';
import { formatBytes } from '../graph/format';
import type { DiffState } from './state';
import { FILTER_TEXTS, STATES } from './words';

export function showLegend(element: HTMLDetailsElement, state: DiffState): void {
  element.replaceChildren(h('summary', {}, h('b', {}, 'A to B')));
  element.append(
    key('removed', FILTER_TEXTS.removed.sign, STATES.removed),
    key('added', FILTER_TEXTS.added.sign, STATES.added),
    key('changed', FILTER_TEXTS.changed.sign, 'changed: shape, dtype or bytes'),
  );
  if (state.record.gradients) element.append(key('text', '▲ × 3.4', 'gradient norm, B over A'));
  if (state.onlyChanges) element.append(key('text', '= a … b', 'unchanged, folded into one box'));
  const width = state.widthOf(state.mostFlow).toFixed(1);
  const line = h('i', { class: 'flow', style: `border-top-width:${width}px` });
  const text = h('span', {}, `${formatBytes(state.mostFlow)} flow along an edge`);
  element.append(h('div', 'key', line, text));
  element.append(h('p', {}, 'Arrows follow the data; gradients run back.'));
}

function key(kind: string, sign: string, text: string): HTMLElement {
  const mark = h('i', { class: `mark ${kind}` }, sign);
  return h('div', 'key', mark, h('span', {}, text));
}
