/** Draws the chart: category areas over what is reserved. */
import { formatCount } from '../graph/format';
import type { Palette } from '../graph/theme';
import type { Fill, Patterns } from './patterns';
import {
  BOTTOM,
  columnsOf,
  gridMarks,
  LEFT,
  niceTop,
  RIGHT,
  ticks,
  TOP,
  xOf,
  type ChartView,
} from './scale';
import { CATEGORIES, timeAt } from './series';
import { limitOf } from './timeline-limits';
import type { Box } from './timeline-pen';

export interface Frame {
  context: CanvasRenderingContext2D;
  palette: Palette;
  patterns: Patterns;
  width: number;
  height: number;
  /** Where labels stand already: none is written over another. */
  labels: Box[];
}

/** y of a number of bytes. */
export type Height = (bytes: number) => number;

/** Draws everything that stays while the scrubber moves; gives the scale of the bytes. */
export function paintTimeline(frame: Frame, view: ChartView): Height {
  const { context, palette, width, height } = frame;
  context.fillStyle = palette.token('--wb-surface');
  context.fillRect(0, 0, width, height);
  context.textBaseline = 'middle';
  const columns = Math.max(2, Math.floor(width - LEFT - RIGHT));
  const picks = columnsOf(view, columns, view.highest);
  const highest = view.hidden.size === 0 ? view.reservedHighest : null;
  const reserved = highest ? columnsOf(view, columns, highest) : null;
  const whole = view.filtered && view.hidden.size === 0 ? view.all.most : 0;
  const least = Math.max(1, view.least ?? 0);
  const shown = Math.max(least, most(view, picks), whole, mostReserved(view, reserved));
  const top = niceTop(Math.max(shown, limitOf(view, shown)));
  const y: Height = (bytes) => height - BOTTOM - (bytes / top) * (height - TOP - BOTTOM);
  paintGrid(frame, top, y);
  if (reserved)
    fillSteps(frame, reserved, (at) => y(view.all.reserved?.[at] ?? 0), frame.patterns.free);
  if (whole > 0) {
    const all = columnsOf(view, columns, view.allHighest);
    fillSteps(frame, all, (at) => y(view.all.total[at] ?? 0), palette.stroke);
  }
  paintAreas(frame, view, picks, y);
  if (reserved) strokeSteps(frame, reserved, (at) => y(view.all.reserved?.[at] ?? 0), 1.5);
  paintTime(frame, view);
  return y;
}

function reservedShown(view: ChartView): boolean {
  return view.reservedHighest !== null && view.hidden.size === 0;
}

function most(view: ChartView, picks: Int32Array): number {
  const shown = view.series.live.filter((_, category) => !view.hidden.has(category));
  let found = 0;
  for (const at of picks)
    found = Math.max(
      found,
      shown.reduce((sum, values) => sum + (values?.[at] ?? 0), 0),
    );
  return found;
}

function mostReserved(view: ChartView, picks: Int32Array | null): number {
  let found = 0;
  for (const at of picks ?? []) found = Math.max(found, view.all.reserved?.[at] ?? 0);
  return found;
}

function paintGrid(frame: Frame, top: number, y: Height): void {
  const { context, palette, width } = frame;
  context.font = `11px ${palette.font}`;
  context.lineWidth = 1;
  context.textAlign = 'right';
  for (const [bytes, text] of gridMarks(top)) {
    const at = Math.round(y(bytes)) + 0.5;
    context.strokeStyle = palette.grid;
    context.beginPath();
    context.moveTo(LEFT, at);
    context.lineTo(width - RIGHT, at);
    context.stroke();
    context.fillStyle = palette.ink2;
    context.fillText(text, LEFT - 8, at);
  }
}

/** A surface from zero up; the areas then cover what they are about. */
function fillSteps(frame: Frame, picks: Int32Array, y: (at: number) => number, fill: Fill): void {
  const { context, height } = frame;
  context.beginPath();
  context.moveTo(LEFT, height - BOTTOM);
  stepAlong(context, picks, y);
  context.lineTo(LEFT + picks.length, height - BOTTOM);
  context.fillStyle = fill;
  context.fill();
}

function paintAreas(frame: Frame, view: ChartView, picks: Int32Array, y: Height): void {
  const { context, palette } = frame;
  const base = new Float64Array(picks.length);
  CATEGORIES.forEach((name, category) => {
    const values = view.series.live[category];
    const colour = palette.categories[name];
    if (view.hidden.has(category) || !values || !colour) return;
    context.beginPath();
    picks.forEach((at, column) => {
      const level = y((base[column] ?? 0) + (values[at] ?? 0));
      context.lineTo(LEFT + column, level);
      context.lineTo(LEFT + column + 1, level);
    });
    for (let column = picks.length - 1; column >= 0; column -= 1) {
      const level = y(base[column] ?? 0);
      context.lineTo(LEFT + column + 1, level);
      context.lineTo(LEFT + column, level);
      base[column] = (base[column] ?? 0) + (values[picks[column] ?? 0] ?? 0);
    }
    context.fillStyle = colour.fill;
    context.fill();
  });
  if (reservedShown(view) && !view.filtered) return;
  context.strokeStyle = palette.ink;
  context.lineWidth = 1.25;
  context.beginPath();
  base.forEach((bytes, column) => {
    context.lineTo(LEFT + column, y(bytes));
    context.lineTo(LEFT + column + 1, y(bytes));
  });
  context.stroke();
}

function strokeSteps(
  frame: Frame,
  picks: Int32Array,
  y: (at: number) => number,
  wide: number,
): void {
  const { context, palette } = frame;
  context.strokeStyle = palette.ink;
  context.lineWidth = wide;
  context.lineJoin = 'round';
  context.beginPath();
  stepAlong(context, picks, y);
  context.stroke();
}

function stepAlong(
  context: CanvasRenderingContext2D,
  picks: Int32Array,
  y: (at: number) => number,
): void {
  picks.forEach((at, column) => {
    context.lineTo(LEFT + column, y(at));
    context.lineTo(LEFT + column + 1, y(at));
  });
}

/** Marks and numbers below the chart. */
function paintTime(frame: Frame, view: ChartView): void {
  const { context, palette, width, height } = frame;
  const floor = height - BOTTOM;
  context.fillStyle = palette.ink2;
  context.font = `11px ${palette.font}`;
  context.fillRect(LEFT, floor, width - LEFT - RIGHT, 1);
  if (view.warp) return; // places that two recordings share have no numbers
  const clock = view.axis === 'time';
  const from = clock ? timeAt(view.record, view.from) : view.from;
  const to = clock ? timeAt(view.record, view.to) : view.to;
  const marks = ticks(from, to, Math.max(2, (width - LEFT - RIGHT) / 130));
  const step = (marks[1] ?? 1) - (marks[0] ?? 0);
  const digits = Math.max(0, -Math.floor(Math.log10(Math.max(1e-9, step)) + 1e-9));
  marks.forEach((mark, index) => {
    if (!clock && !Number.isInteger(mark)) return;
    const part = (mark - from) / Math.max(1e-9, to - from);
    const x = LEFT + part * (width - LEFT - RIGHT);
    const text = clock ? mark.toFixed(digits) : formatCount(mark);
    const unit = index === 0 ? (clock ? ' ms' : ' events') : '';
    context.textAlign = part > 0.98 ? 'right' : 'center';
    context.fillText(`${text}${unit}`, x, floor + 12);
    context.fillRect(Math.round(x), floor, 1, 4);
  });
}

/** x of the moment after an event. */
export function xOfEvent(view: ChartView, width: number, event: number): number {
  return xOf(view, width, event + 1);
}
