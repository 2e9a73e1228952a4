/**
 * The speed-up of a variant with its interval, on a logarithmic axis that all rows of a table
 * share.
 */
import type { ComparedArm } from '@torch-workbench/records';
import { s } from '../dom';

const WIDTH = 168;
const HEIGHT = 20;
const EDGE = 8;
const MARKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
/** Labels of an axis need so many pixels each. */
const APART = 30;

/** Gives the pixel of a ratio. */
export type Axis = (ratio: number) => number;

/** An axis that holds every interval of these variants, and 1 between its ends. */
export function axisOf(variants: readonly ComparedArm[]): { x: Axis; marks: number[] } {
  const ends = variants
    .flatMap((variant) => [variant.speedup_low, variant.speedup_high])
    .filter((end) => Number.isFinite(end) && end > 0);
  const low = Math.log(Math.min(0.8, ...ends));
  const high = Math.log(Math.max(1.25, ...ends));
  const x = (ratio: number): number => {
    const share = (Math.log(ratio) - low) / (high - low);
    return EDGE + (WIDTH - 2 * EDGE) * Math.min(Math.max(share, 0), 1);
  };
  const inside = MARKS.filter((mark) => Math.log(mark) >= low && Math.log(mark) <= high);
  const far = inside.filter((mark) => mark === 1 || Math.abs(x(mark) - x(1)) >= APART);
  const marks = far.filter((mark, at) => {
    const next = far[mark < 1 ? at + 1 : at - 1];
    return mark === 1 || next === undefined || Math.abs(x(mark) - x(next)) >= APART;
  });
  return { x, marks };
}

/** The head of the column: the axis' labels. */
export function axisLabels(x: Axis, marks: readonly number[]): SVGElement {
  const texts = marks.map((mark) =>
    s('text', { x: x(mark).toFixed(1), y: 13, 'text-anchor': 'middle' }, `${mark}×`),
  );
  return picture({ 'aria-hidden': 'true' }, ...texts);
}

/** Dot and whisker of one variant; the words beside it say the same. */
export function intervalPlot(variant: ComparedArm, x: Axis, marks: readonly number[]): SVGElement {
  const lines = marks.map((mark) =>
    s('line', {
      class: mark === 1 ? 'wv-one' : 'wv-mark',
      x1: x(mark).toFixed(1),
      x2: x(mark).toFixed(1),
      y1: 0,
      y2: HEIGHT,
    }),
  );
  const { speedup, speedup_low: low, speedup_high: high } = variant;
  if (!(speedup > 0)) return picture({ 'aria-hidden': 'true' }, ...lines);
  const y = HEIGHT / 2;
  const found: SVGElement[] = [];
  if (low > 0 && variant.verdict !== 'baseline') {
    found.push(s('line', { x1: x(low).toFixed(1), x2: x(high).toFixed(1), y1: y, y2: y }));
    for (const end of [low, high]) {
      const at = x(end).toFixed(1);
      found.push(s('line', { x1: at, x2: at, y1: y - 4, y2: y + 4 }));
    }
  }
  found.push(s('circle', { cx: x(speedup).toFixed(1), cy: y, r: 4 }));
  const group = s('g', { class: `wv-is-${variant.verdict || 'open'}` }, ...found);
  return picture({ 'aria-hidden': 'true' }, ...lines, group);
}

function picture(attrs: Record<string, string>, ...children: SVGElement[]): SVGElement {
  return s('svg', { class: 'wv-interval', width: WIDTH, height: HEIGHT, ...attrs }, ...children);
}
