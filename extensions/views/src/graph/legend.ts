/** What colours, bars and widths mean, in the corner of the drawing. */
import { dtypeSwatch, scaleTicks } from './colour';
import { h } from './dom';
import { formatBytes, oneLine } from './format';
import type { Colouring, GraphState } from './state';
import { stepName } from './step-colours';
import type { Palette } from './theme';

/** Pixels that the open legend takes at the top right of the drawing. */
export const LEGEND = { width: 292, height: 270 };
/** Pixels that the closed legend takes there, beyond the margin around the drawing. */
export const LEGEND_BUTTON = { width: 112, height: 32 };

const TITLES: Record<Colouring, string> = {
  bytes: 'Bytes saved for backward, per operation',
  gradient: 'Norm of the gradient of the output (log)',
  time: 'Forward time, per module',
  dtype: 'Element type of the output',
  none: 'Legend',
};

/** Fills the legend for the colouring in use. */
export function showLegend(element: HTMLDetailsElement, state: GraphState, palette: Palette): void {
  element.replaceChildren(h('summary', {}, h('b', {}, titleOf(state))));
  const texts = clipped(scaleTicks(state), state);
  if (texts.length > 0) {
    const ramp = h('div', { class: 'ramp' });
    for (const colour of palette.scale) ramp.append(h('i', { style: `background:${colour}` }));
    const ticks = h('div', { class: 'ticks' });
    for (const text of texts) ticks.append(h('span', {}, text));
    element.append(ramp, ticks);
  }
  element.append(...keysOf(state, palette));
  for (const part of state.mostFlow > 1 ? [1, 1 / 16] : []) {
    const bytes = state.mostFlow * part;
    const width = state.widthOf(bytes).toFixed(1);
    element.append(
      key('flow', `${formatBytes(bytes)} flow along an edge`, `border-top-width:${width}px`),
    );
  }
  element.append(key('chip', 'parameter, folded into its operation'));
  if (state.record.branches.length > 0)
    element.append(key('asked', 'to and from a test that Python made: nothing flows'));
  element.append(h('p', {}, 'Arrows follow the data; gradients run back.'));
}

function titleOf({ colours, colouring }: GraphState): string {
  return colours ? `Gradient norm at ${stepName(colours)} (log)` : TITLES[colouring];
}

/** The loss is left out of the scale of norms: its gradient is 1 whatever the model does. */
function clipped(texts: string[], { colouring, colours, norms, root }: GraphState): string[] {
  const loss = Math.log10(root?.gradient?.norm ?? NaN);
  if (colours || colouring !== 'gradient' || !norms) return texts;
  const last = texts.length - 1;
  return texts.map((text, at) =>
    at === last && loss > norms[1] ? `≥ ${text}` : at === 0 && loss < norms[0] ? `≤ ${text}` : text,
  );
}

function keysOf(state: GraphState, palette: Palette): HTMLElement[] {
  if (state.colours)
    return [
      key('swatch', 'no parameters, or not trained then'),
      key('swatch hatched', 'module did not run at this step'),
      key('swatch bad', '⚠ a gradient was not finite'),
    ];
  switch (state.colouring) {
    case 'bytes':
      return [
        key('', 'held here first (full bar: largest)'),
        key('held', '↑ already held by an earlier operation'),
      ];
    case 'gradient':
      return [
        key('sign', '“0”: every value is zero'),
        key('swatch hatched', 'backward did not run here'),
        key('swatch bad', '⚠ number of values that are not finite'),
      ];
    case 'time':
      return [
        key('swatch', 'a call inside a module: not timed by itself'),
        h('p', {}, 'Host time of all calls in this step, the cost of the capture included.'),
      ];
    case 'dtype':
      return state.dtypes.slice(0, 8).map((dtype) => {
        const fill = dtypeSwatch(dtype, state, palette)?.fill ?? palette.raise;
        return key('swatch', oneLine(dtype) || 'unknown', `background:${fill}`);
      });
    case 'none':
      return [];
  }
}

function key(kind: string, text: string, style = ''): HTMLElement {
  return h(
    'div',
    { class: 'key' },
    h('i', { class: kind, style: style || null }),
    h('span', {}, text),
  );
}
