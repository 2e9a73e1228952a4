/** What colours, bars and widths mean, in the corner of the drawing. */
import { dtypeSwatch, scaleTicks } from './colour';
import { h } from './dom';
import { UNKNOWN } from './dtypes';
import { formatBytes, oneLine } from './format';
import type { Colouring, GraphState } from './state';
import { stepName } from './step-colours';
import type { Palette } from './theme';

/** Pixels that the open legend takes at the top right of the drawing; higher where it says more. */
export const LEGEND = { width: 292, height: 270 };
/** Pixels that the closed legend takes there. */
export const LEGEND_BUTTON = { width: 112, height: 48 };

const TITLES: Record<Colouring, string> = {
  bytes: 'Bytes saved for backward, per operation',
  gradient: 'Norm of the gradient of the output (log)',
  time: 'Forward time, per module',
  dtype: 'Computed in',
  none: 'Legend',
};

/** What stands in place of a scale that no value is on. */
const NOTHING: Partial<Record<Colouring, string>> = {
  bytes: 'Nothing is saved for backward.',
  gradient: 'No norm is finite and above zero.',
};

/** Fills the legend for the colouring in use. */
export function showLegend(element: HTMLDetailsElement, state: GraphState, palette: Palette): void {
  element.replaceChildren(h('summary', {}, h('b', {}, titleOf(state))));
  element.append(...scaleOf(state, palette), ...keysOf(state, palette));
  for (const part of [1, 1 / 16]) {
    const bytes = state.mostFlow * part;
    if (bytes <= 1) continue;
    const width = state.widthOf(bytes).toFixed(1);
    element.append(
      key('flow', `${formatBytes(bytes)} flow along an edge`, `border-top-width:${width}px`),
    );
  }
  element.append(key('chip', 'parameter, folded into its operation'));
  if (state.record.branches.length > 0)
    element.append(key('test', 'to and from a test in Python: no data flows'));
  element.append(h('p', {}, 'Arrows follow the data; gradients run back.'));
}

/** The ramp with its ticks; a swatch where all values are alike, a sentence where there are none. */
function scaleOf(state: GraphState, palette: Palette): HTMLElement[] {
  const texts = clipped(scaleTicks(state), state);
  const [text] = texts;
  if (text === undefined) {
    const none = noScale(state);
    return none ? [h('p', {}, none)] : [];
  }
  if (texts.length === 1)
    return [key('swatch', `${text}: all norms alike`, `background:${palette.scale[4]}`)];
  const ramp = h('div', 'ramp');
  for (const colour of palette.scale) ramp.append(h('i', { style: `background:${colour}` }));
  const ticks = h('div', 'ticks');
  for (const tick of texts) ticks.append(h('span', {}, tick));
  return [ramp, ticks];
}

/** Why there is no scale: what was measured is on none, or nothing was measured. */
function noScale(state: GraphState): string | undefined {
  const { colours, colouring, tree } = state;
  if (!colours) return NOTHING[colouring];
  const norm = colours.normOf(tree.root, state)?.norm ?? NaN;
  return Number.isNaN(norm) ? 'No gradient was measured at this step.' : NOTHING.gradient;
}

function titleOf({ colours, colouring }: GraphState): string {
  return colours ? `Gradient norm at ${stepName(colours)} (log)` : TITLES[colouring];
}

/** The loss is left out of the scale of norms: its gradient is 1 whatever the model does. */
function clipped(texts: string[], { colouring, colours, norms, root }: GraphState): string[] {
  const loss = Math.log10(root?.gradient?.norm ?? NaN);
  if (colours || colouring !== 'gradient' || !norms || texts.length < 2) return texts;
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
      if (state.mostSaved === 0) return [];
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
        const fill = dtypeSwatch(dtype, state, palette)?.fill;
        const kind = dtype === UNKNOWN ? 'swatch hatched' : 'swatch';
        return key(kind, oneLine(dtype), fill && `background:${fill}`);
      });
    case 'none':
      return [];
  }
}

function key(kind: string, text: string, style = ''): HTMLElement {
  return h('div', 'key', h('i', { class: kind, style: style || null }), h('span', {}, text));
}
