/** Which colour and figure an operation or a module gets, by what the drawing is coloured by. */
import { UNKNOWN } from './dtypes';
import { formatBytes, formatCount, formatNumber, formatSeconds } from './format';
import { outputGradient, type Gradient } from './gradients';
import { isInside, type Item } from './groups';
import { isOperation, type Operation } from './operations';
import type { GraphState } from './state';
import { normText, type StepColours } from './step-colours';
import { swatchName, type Palette } from './theme';

/** How an item is filled, and the figure at its right end. */
export interface Shade {
  fill: string;
  ink: string;
  ink2: string;
  /** Backward did not run here. */
  hatched: boolean;
  /** Values are not finite: an icon and an outline say so beside the count. */
  bad: boolean;
  figure: string;
  /** The strong colour of what became of it: for its outline, and for all of it from far away. */
  mark?: string;
  /** Under its name, in place of the output's shape. */
  detail?: string;
}

/** The shade of an operation, or of a closed module. */
export function shadeOf(item: Item, state: GraphState, palette: Palette): Shade {
  const known = !isInside(item);
  const figure = isOperation(item) ? bytesOf(item) : known ? formatBytes(item.saved) : '';
  const plain = { ...plainShade(palette), figure };
  if (state.colours) return stepShade(item, state, state.colours, palette);
  switch (state.colouring) {
    case 'gradient':
      if (!known) return plain;
      return gradientShade(outputGradient(item, state.operations), state, palette);
    case 'time':
      if (item.seconds === null) return { ...plain, figure: '' };
      return {
        ...onScale(stepOf(item.seconds, state.mostSeconds), palette),
        figure: formatSeconds(item.seconds),
      };
    case 'bytes':
      if (!isOperation(item)) return plain;
      return { ...onScale(stepOf(item.saved, state.mostSaved), palette), figure };
    case 'dtype': {
      if (!isOperation(item)) return plain;
      const { computed } = item;
      const swatch = dtypeSwatch(computed, state, palette);
      return {
        ...plain,
        ...swatch,
        ink2: swatch?.ink ?? palette.ink2,
        hatched: computed === UNKNOWN,
        figure: computed.includes('+') ? 'mixed' : computed,
      };
    }
    case 'none':
      return plain;
  }
}

function plainShade(palette: Palette): Shade {
  const { raise, ink, ink2 } = palette;
  return { fill: raise, ink, ink2, hatched: false, bad: false, figure: '' };
}

/** Step 0 to 8 of the violet scale; below that a plain surface. */
function onScale(step: number, palette: Palette): Shade {
  const plain = plainShade(palette);
  if (step < 0) return plain;
  const ink = palette.scaleInk[step] ?? palette.ink;
  return { ...plain, fill: palette.scale[step] ?? palette.raise, ink, ink2: ink };
}

function bytesOf({ saved, shared }: Operation): string {
  if (saved > 0) return formatBytes(saved);
  return shared > 0 ? `↑ ${formatBytes(shared)}` : '';
}

/** Zero is "0" on a plain surface, what did not run is hatched, non-finite counts beside an icon. */
function gradientShade(gradient: Gradient | null, state: GraphState, palette: Palette): Shade {
  const plain = plainShade(palette);
  if (!gradient) return { ...plain, hatched: true };
  if (gradient.nonFinite > 0)
    return { ...plain, bad: true, figure: `⚠ ${formatCount(gradient.nonFinite)}` };
  if (gradient.norm === 0) return { ...plain, figure: '0' };
  return {
    ...onScale(normStep(gradient.norm, state.norms), palette),
    figure: formatNumber(gradient.norm),
  };
}

/** By the norm of the module's parameters, whose figure stands once: at the outermost box with it. */
function stepShade(item: Item, state: GraphState, colours: StepColours, palette: Palette): Shade {
  const plain = plainShade(palette);
  const found = colours.normOf(item, state);
  if (!found) return plain;
  const { norm, name } = found;
  const around = state.parent(item);
  const inside = around !== null && around !== state.tree.root;
  const again = inside && colours.normOf(around, state)?.name === name;
  const figure = again ? '' : normText(norm);
  const bad = norm === Infinity;
  if (bad || Number.isNaN(norm)) return { ...plain, bad, hatched: !bad, figure };
  return { ...onScale(normStep(norm, colours.range), palette), figure };
}

/** Step of the square-root scale, 0 to 8; -1 for nothing. */
export function stepOf(value: number, most: number): number {
  if (value <= 0 || most <= 0) return -1;
  return Math.min(8, Math.floor(Math.sqrt(value / most) * 9));
}

/** Norms closer than this (base 10: by 2.3 %) are shown as one: no scale is made of rounding. */
const ALIKE = 0.01;

/** Step of the logarithmic scale between the smallest and the largest norm, 0 to 8. */
export function normStep(norm: number, range: readonly [number, number] | null): number {
  if (!range || !(norm > 0)) return -1;
  const [low, high] = range;
  const part = high - low < ALIKE ? 0.5 : (Math.log10(norm) - low) / (high - low);
  return Math.min(8, Math.max(0, Math.floor(part * 9)));
}

/** The colour of what is computed in; float32, the default, and what is unknown stay plain. */
export function dtypeSwatch(
  dtype: string,
  state: GraphState,
  palette: Palette,
): { fill: string; ink: string } | null {
  const others = state.dtypes.filter((name) => !['float32', UNKNOWN].includes(name));
  const index = others.indexOf(dtype);
  return index < 0 ? null : (palette.categories[swatchName(index)] ?? null);
}

/**
 * Values at the four ticks of the scale in use: two where more would say the same, one where all
 * values are alike, none without a scale.
 */
export function scaleTicks(state: GraphState): string[] {
  const { colours, colouring, mostSaved, mostSeconds } = state;
  const ticks = (text: (part: number) => string): string[] => {
    const texts = [0, 1 / 3, 2 / 3, 1].map(text);
    return new Set(texts).size < 4 ? [text(0), text(1)] : texts;
  };
  if (!colours && colouring === 'bytes')
    return mostSaved > 0 ? ticks((part) => formatBytes(mostSaved * part * part)) : [];
  if (!colours && colouring === 'time')
    return mostSeconds > 0 ? ticks((part) => formatSeconds(mostSeconds * part * part)) : [];
  const norms = colours ? colours.range : colouring === 'gradient' ? state.norms : null;
  if (!norms) return [];
  const [low, high] = norms;
  if (high - low < ALIKE) return [formatNumber(10 ** low)];
  return ticks((part) => formatNumber(10 ** (low + (high - low) * part)));
}
