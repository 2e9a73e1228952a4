/**
 * A variant beside its baseline: the step time of every round as dots, the loss of every step as
 * lines.
 */
import { ticks, tickLabel, tickStep } from '../curves/scale';
import { s, h } from '../dom';
import { keptRows } from '../kernel';
import type { Points } from './report';

const HEIGHT = 168;
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 34;
/** More points than pixels are not drawn one by one. */
const MOST = 1_500;

export interface Series {
  readonly name: string;
  readonly points: Points;
  /** The baseline is hollow, or dashed. */
  readonly baseline: boolean;
}

export interface Chart {
  readonly title: string;
  readonly across: string;
  readonly up: string;
  readonly kind: 'dots' | 'lines';
  readonly fromZero: boolean;
  readonly series: readonly Series[];
}

/** A chart with its title and key, `width` pixels wide. */
export function chartOf(chart: Chart, width: number): HTMLElement {
  const key = chart.series.map(({ name, baseline }) =>
    h('span', {}, sample(chart.kind, baseline), name),
  );
  const said = `${chart.title}: ${chart.series.map(summary).join('; ')}`;
  return h(
    'figure',
    {},
    h('figcaption', {}, h('b', {}, chart.title), ...key),
    drawing(chart, Math.max(width, 200), said),
  );
}

function drawing({ across, up, kind, fromZero, series }: Chart, width: number, said: string) {
  const shown = series.map((one) => ({ ...one, points: thinned(one.points) }));
  const xs = shown.flatMap(({ points }) => points.x);
  const ys = shown.flatMap(({ points }) => points.y).filter((value) => Number.isFinite(value));
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const low = fromZero ? 0 : Math.min(...ys);
  const high = Math.max(...ys);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  const [bottom, top] = [fromZero ? 0 : low - room, high + room];
  const x = (value: number): number =>
    last > first
      ? LEFT + 6 + ((width - LEFT - RIGHT - 12) * (value - first)) / (last - first)
      : (LEFT + width - RIGHT) / 2;
  const y = (value: number): number =>
    HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * (value - bottom)) / (top - bottom);
  const marks: SVGElement[] = [];
  const step = tickStep(top - bottom, 4);
  for (const value of ticks(bottom, top, 4)) {
    const at = y(value).toFixed(1);
    marks.push(
      s('line', { class: 'wv-grid', x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      s('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, tickLabel(value, step)),
    );
  }
  const whole = last > first ? Math.max(1, tickStep(last - first, width / 80)) : 1;
  for (const value of last > first ? ticks(first, last, width / 80) : [first])
    if (Number.isInteger(value)) {
      const label = tickLabel(value, whole);
      marks.push(
        s('text', { x: x(value), y: HEIGHT - BOTTOM + 15, 'text-anchor': 'middle' }, label),
      );
    }
  const middle = (LEFT + width - RIGHT) / 2;
  const turned = `rotate(-90 11 ${(HEIGHT - BOTTOM) / 2})`;
  marks.push(
    s('text', { x: middle, y: HEIGHT - 4, 'text-anchor': 'middle', class: 'wv-axis' }, across),
    s(
      'text',
      {
        x: 11,
        y: (HEIGHT - BOTTOM) / 2,
        'text-anchor': 'middle',
        transform: turned,
        class: 'wv-axis',
      },
      up,
    ),
  );
  for (const { points, baseline } of shown) {
    const own = baseline ? 'wv-base' : 'wv-variant';
    if (kind === 'lines') marks.push(s('path', { class: own, d: path(points, x, y) }));
    else
      points.x.forEach((value, at) => {
        const cy = y(points.y[at] ?? NaN);
        if (Number.isFinite(cy)) marks.push(s('circle', { class: own, cx: x(value), cy, r: 3 }));
      });
  }
  return s('svg', { width, height: HEIGHT, role: 'img', 'aria-label': said }, ...marks);
}

function path({ x: xs, y: ys }: Points, x: (v: number) => number, y: (v: number) => number) {
  let pen = 'M';
  let d = '';
  xs.forEach((value, at) => {
    const up = ys[at] ?? NaN;
    if (Number.isFinite(up)) d += `${pen}${x(value).toFixed(1)} ${y(up).toFixed(1)}`;
    pen = Number.isFinite(up) ? 'L' : 'M';
  });
  return d;
}

/** At most so many points, and none lost that stands out. */
function thinned({ x, y }: Points): Points {
  if (x.length <= MOST) return { x, y };
  const rows = keptRows(y, y.length, MOST);
  return { x: rows.map((row) => x[row] ?? NaN), y: rows.map((row) => y[row] ?? NaN) };
}

function sample(kind: Chart['kind'], baseline: boolean): SVGElement {
  const own = baseline ? 'wv-base' : 'wv-variant';
  const mark =
    kind === 'dots'
      ? s('circle', { class: own, cx: 9, cy: 6, r: 3 })
      : s('path', { class: own, d: 'M1 6H17' });
  return s('svg', { width: 18, height: 12, 'aria-hidden': 'true' }, mark);
}

/** The range of a series in words, for who does not see it. */
function summary({ name, points }: Series): string {
  const known = points.y.filter((value) => Number.isFinite(value));
  if (known.length === 0) return `${name} has none`;
  let [low, high] = [Infinity, -Infinity];
  for (const value of known) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return `${name} from ${low.toPrecision(3)} to ${high.toPrecision(3)}`;
}
