/** What colours, bars and widths mean, in the corner of the drawing. */
import { dtypeSwatch, scaleTicks } from './colour';
import { h } from './dom';
import { formatBytes, oneLine } from './format';
import type { GraphState } from './state';
import type { Palette } from './theme';

const TITLES = {
  bytes: 'Bytes saved for backward, per operation',
  dtype: 'Element type of the output',
  none: 'Legend',
};

/** Fills the legend for the colouring in use. */
export function showLegend(element: HTMLDetailsElement, state: GraphState, palette: Palette): void {
  element.replaceChildren(h('summary', {}, h('b', {}, TITLES[state.colouring])));
  if (state.colouring === 'bytes') {
    const ramp = h('div', { class: 'ramp' });
    for (const colour of palette.scale) ramp.append(h('i', { style: `background:${colour}` }));
    const ticks = h('div', { class: 'ticks' });
    for (const text of scaleTicks(state.mostSaved)) ticks.append(h('span', {}, text));
    element.append(ramp, ticks);
    element.append(
      key('', 'held here first (full bar: largest)'),
      key('held', '↑ already held by an earlier operation'),
    );
  }
  if (state.colouring === 'dtype')
    for (const dtype of state.dtypes.slice(0, 8)) {
      const swatch = dtypeSwatch(dtype, state, palette);
      element.append(
        key('swatch', oneLine(dtype) || 'unknown', `background:${swatch?.fill ?? palette.raise}`),
      );
    }
  for (const part of [1, 1 / 16]) {
    const bytes = state.mostFlow * part;
    const width = state.widthOf(bytes).toFixed(1);
    element.append(
      key('flow', `${formatBytes(bytes)} flow along an edge`, `border-top-width:${width}px`),
    );
  }
  element.append(key('chip', 'parameter, folded into its operation'));
  element.append(h('p', {}, 'Arrows follow the data; gradients run back.'));
}

function key(kind: string, text: string, style = ''): HTMLElement {
  return h(
    'div',
    { class: 'key' },
    h('i', { class: kind, style: style || null }),
    h('span', {}, text),
  );
}
