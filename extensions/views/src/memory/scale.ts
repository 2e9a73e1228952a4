/** What part of a recording the chart shows, and where a position lies in it. */
import type { MemoryColumns, Series } from './series';

export const LEFT = 68;
export const RIGHT = 14;
export const PHASES = 20;
export const TOP = PHASES + 22;
export const BOTTOM = 24;

export interface ChartView {
  record: MemoryColumns;
  series: Series;
  from: number;
  to: number;
  scrubber: number;
  hover: number | null;
  brush: [number, number] | null;
  hidden: ReadonlySet<number>;
}

/** x of a position. */
export function xOf(view: Pick<ChartView, 'from' | 'to'>, width: number, position: number): number {
  return (
    LEFT + ((position - view.from) / Math.max(1e-9, view.to - view.from)) * (width - LEFT - RIGHT)
  );
}

/** Position under x, kept inside the view. */
export function positionAt(view: Pick<ChartView, 'from' | 'to'>, width: number, x: number): number {
  const part = (x - LEFT) / Math.max(1, width - LEFT - RIGHT);
  return Math.round(view.from + Math.min(1, Math.max(0, part)) * (view.to - view.from));
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
