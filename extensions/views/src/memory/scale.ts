/** What part of a recording the chart shows, and where a position is in it. */
import { formatMarks } from '../graph/format';
import { Pyramid } from './pyramid';
import { timeAt, type MemoryColumns, type Series } from './series';

export const LEFT = 72;
export const RIGHT = 18;
export const PHASES = 22;
export const TOP = PHASES + 20;
export const BOTTOM = 26;

/** By the clock, or every event as wide as every other. */
export type Axis = 'time' | 'events';

export interface ChartView {
  record: MemoryColumns;
  /** Of the blocks that pass the filter. */
  series: Series;
  /** Of all blocks: what the peak, the scrubber and the reserved line are about. */
  all: Series;
  highest: Pyramid;
  allHighest: Pyramid;
  reservedHighest: Pyramid | null;
  axis: Axis;
  from: number;
  to: number;
  scrubber: number;
  hover: number | null;
  brush: [number, number] | null;
  hidden: ReadonlySet<number>;
  /** Whether some blocks are left out of `series`. */
  filtered: boolean;
  /** Where the chosen "What if?" runs out of memory. */
  failure?: Failure | null;
  /** Where positions go beside another recording; takes the place of `axis`. */
  warp?: Warp | null;
  /** The scale of bytes shows so much at least, so that two charts have one. */
  least?: number;
}

/** A recording shown whole and event by event. */
export function wholeView(record: MemoryColumns, series: Series): ChartView {
  const highest = new Pyramid(series.total);
  return {
    record,
    series,
    all: series,
    highest,
    allHighest: highest,
    reservedHighest: series.reserved ? new Pyramid(series.reserved) : null,
    axis: 'events',
    from: 0,
    to: series.length - 1,
    scrubber: -1,
    hover: null,
    brush: null,
    hidden: new Set(),
    filtered: false,
  };
}

/** Shows the series of some blocks over that of all; null shows all alone again. */
export function showOnly(view: ChartView, some: Series | null): void {
  view.filtered = some !== null;
  view.series = some ?? view.all;
  view.highest = some ? new Pyramid(some.total) : view.allHighest;
}

/** Positions, and where each is, from 0 to 1, on an axis that two recordings share. */
export interface Warp {
  positions: readonly number[];
  places: readonly number[];
}

/** Where a program is predicted to run out of memory. */
export interface Failure {
  event: number;
  card: string;
}

type Span = Pick<ChartView, 'record' | 'axis' | 'from' | 'to' | 'warp'>;

/** A position on the axis: itself, its milliseconds, or its place beside another recording. */
function along(view: Span, position: number): number {
  if (view.warp) return warped(view.warp, position);
  return view.axis === 'events' ? position : timeAt(view.record, position);
}

/** Where the chart begins and ends on its axis; a shared axis is shown whole. */
function ends(view: Span): [number, number] {
  return view.warp ? [0, 1] : [along(view, view.from), along(view, view.to)];
}

function warped({ positions, places }: Warp, position: number): number {
  let right = positions.findIndex((knot) => knot >= position);
  if (right < 0) right = positions.length - 1;
  const [to = 0, end = 0] = [positions[right], places[right]];
  const from = positions[right - 1] ?? to;
  if (position >= to || from >= to) return end;
  const start = places[right - 1] ?? end;
  return start + ((position - from) / (to - from)) * (end - start);
}

/** x of a position. */
export function xOf(view: Span, width: number, position: number): number {
  const [from, to] = ends(view);
  const span = Math.max(1e-9, to - from);
  return LEFT + ((along(view, position) - from) / span) * (width - LEFT - RIGHT);
}

/** Position under x, kept inside the view. */
export function positionAt(view: Span, width: number, x: number): number {
  const part = Math.min(1, Math.max(0, (x - LEFT) / Math.max(1, width - LEFT - RIGHT)));
  if (view.axis === 'events' && !view.warp)
    return Math.round(view.from + part * (view.to - view.from));
  const [from, to] = ends(view);
  return lastBefore(view, from + part * (to - from));
}

/** The last position that is not after a place on the axis. */
function lastBefore(view: Span, place: number): number {
  let low = view.from;
  let high = view.to;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (along(view, middle) <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * For every pixel column the position whose total is largest among those it shows. What a column
 * begins with belongs to it: memory stays as it is until the next event.
 */
export function columnsOf(view: ChartView, columns: number, highest: Pyramid): Int32Array {
  const picks = new Int32Array(columns);
  const width = columns + LEFT + RIGHT;
  let carried = view.from;
  for (let column = 0; column < columns; column += 1) {
    const last = column === columns - 1 ? view.to : endOf(view, width, column);
    picks[column] = highest.argmax(Math.min(carried, last), Math.max(carried, last));
    carried = Math.max(carried, last);
  }
  return picks;
}

function endOf(view: ChartView, width: number, column: number): number {
  if (view.axis === 'events' && !view.warp) {
    const span = (view.to + 1 - view.from) / (width - LEFT - RIGHT);
    return Math.min(view.to, Math.max(view.from, Math.ceil(view.from + (column + 1) * span) - 1));
  }
  return positionAt(view, width, LEFT + column + 1);
}

/** A round number in the unit the value is read in; its quarters are round too. */
export function niceTop(bytes: number): number {
  let unit = 1;
  while (bytes / unit >= 1024) unit *= 1024;
  const value = (bytes * 1.04) / unit;
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  const step =
    [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10].find((factor) => factor * power >= value) ?? 10;
  return step * power * unit;
}

/** The lines of a chart that ends at `niceTop`: from 0 in four steps, each with what it reads. */
export function gridMarks(top: number): [bytes: number, text: string][] {
  const marks = [1, 2, 3, 4].map((part) => (top * part) / 4);
  const texts = formatMarks(marks);
  return [[0, '0'], ...marks.map((bytes, row): [number, string] => [bytes, texts[row] ?? ''])];
}

/** Round marks within [from, to], about `count` of them. */
export function ticks(from: number, to: number, count: number): number[] {
  const rough = Math.max(1e-9, (to - from) / Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-6; at += step) found.push(at);
  return found;
}
