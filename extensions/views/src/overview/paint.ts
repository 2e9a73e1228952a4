/** Draws the overview of a recording: what was live, and which range of it is chosen. */
import { formatBytes, formatCount } from '../graph/format';
import type { Palette } from '../graph/theme';
import { BOTTOM, gridMarks, LEFT, niceTop, RIGHT, ticks } from '../memory/scale';
import { positionOf, timeOf, type Along, type Overview, type EventRange } from './model';

/** Room above the curve for the handle of the range and the sign of the peak. */
export const TOP = 52;

export interface Plot {
  seen: Overview;
  along: Along;
  width: number;
  height: number;
}

/** x of a position. */
export function xOf({ seen, along, width }: Plot, position: number): number {
  const part =
    along === 'time' ? timeOf(seen, position) / seen.duration_us : position / seen.num_events;
  return LEFT + part * (width - LEFT - RIGHT);
}

/** Position under x, kept inside the recording. */
export function positionAt({ seen, along, width }: Plot, x: number): number {
  const part = Math.max(0, Math.min(1, (x - LEFT) / Math.max(1, width - LEFT - RIGHT)));
  return along === 'time'
    ? positionOf(seen, part * seen.duration_us)
    : Math.round(part * seen.num_events);
}

export function paint(
  context: CanvasRenderingContext2D,
  palette: Palette,
  plot: Plot,
  range: EventRange,
): void {
  const { seen, width, height } = plot;
  const floor = height - BOTTOM;
  const top = niceTop(Math.max(1, seen.peak_bytes));
  const y = (bytes: number): number => floor - (bytes / top) * (floor - TOP);
  const [from, to] = [xOf(plot, range.start), xOf(plot, range.end)];
  context.fillStyle = palette.token('--wb-surface');
  context.fillRect(0, 0, width, height);
  context.fillStyle = palette.token('--wb-selbg');
  context.fillRect(from, TOP - 4, Math.max(1, to - from), floor - TOP + 4);
  grid(context, palette, plot, top, y);
  curve(context, plot, y);
  context.fillStyle = palette.hatchBack;
  context.fill();
  context.save();
  context.beginPath();
  context.rect(from, 0, Math.max(1, to - from), height);
  context.clip();
  curve(context, plot, y);
  context.fillStyle = palette.scale[3] ?? palette.flow;
  context.fill();
  context.restore();
  outline(context, palette, plot, y);
  context.fillStyle = palette.select;
  for (const x of [from, to]) context.fillRect(Math.round(x) - 1, TOP - 4, 2, floor - TOP + 4);
  peak(context, palette, plot, y(seen.peak_bytes));
  axis(context, palette, plot, floor);
}

function grid(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { width }: Plot,
  top: number,
  y: (bytes: number) => number,
): void {
  context.font = `11px ${palette.font}`;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (const [bytes, text] of gridMarks(top)) {
    const at = Math.round(y(bytes));
    context.fillStyle = palette.grid;
    context.fillRect(LEFT, at, width - LEFT - RIGHT, 1);
    context.fillStyle = palette.ink2;
    context.fillText(text, LEFT - 8, at);
  }
}

/** The surface below the curve: each point as wide as what it stands for, a pixel at least. */
function curve(context: CanvasRenderingContext2D, plot: Plot, y: (bytes: number) => number): void {
  context.beginPath();
  context.moveTo(LEFT, y(0));
  steps(context, plot, y);
  context.lineTo(plot.width - RIGHT, y(0));
}

function outline(
  context: CanvasRenderingContext2D,
  palette: Palette,
  plot: Plot,
  y: (bytes: number) => number,
): void {
  context.beginPath();
  steps(context, plot, y);
  context.strokeStyle = palette.ink;
  context.lineWidth = 1.25;
  context.lineJoin = 'round';
  context.stroke();
}

function steps(context: CanvasRenderingContext2D, plot: Plot, y: (bytes: number) => number): void {
  const { position, bytes, num_events } = plot.seen;
  bytes.forEach((value, at) => {
    context.lineTo(xOf(plot, position[at] ?? 0), y(value));
    context.lineTo(xOf(plot, position[at + 1] ?? num_events), y(value));
  });
}

function peak(
  context: CanvasRenderingContext2D,
  palette: Palette,
  plot: Plot,
  level: number,
): void {
  const x = xOf(plot, plot.seen.peak_position);
  const text = `Peak ${formatBytes(plot.seen.peak_bytes)}`;
  context.fillStyle = palette.ink;
  context.beginPath();
  context.moveTo(x, level - 3);
  context.lineTo(x - 5, level - 11);
  context.lineTo(x + 5, level - 11);
  context.fill();
  context.font = `600 11px ${palette.font}`;
  const room = context.measureText(text).width + 12;
  const right = x + room > plot.width - RIGHT;
  context.textAlign = right ? 'right' : 'left';
  context.fillText(text, right ? x - 9 : x + 9, level - 8);
}

function axis(
  context: CanvasRenderingContext2D,
  palette: Palette,
  plot: Plot,
  floor: number,
): void {
  const { seen, along, width } = plot;
  const clock = along === 'time';
  const unit = seen.duration_us >= 10_000_000 ? { name: ' s', us: 1e6 } : { name: ' ms', us: 1e3 };
  const end = clock ? seen.duration_us / unit.us : seen.num_events;
  const marks = ticks(0, end, Math.max(2, (width - LEFT - RIGHT) / 140));
  context.font = `11px ${palette.font}`;
  context.fillStyle = palette.ink2;
  context.fillRect(LEFT, floor, width - LEFT - RIGHT, 1);
  marks.forEach((mark, index) => {
    const x = LEFT + (mark / end) * (width - LEFT - RIGHT);
    const text = clock ? Number(mark.toPrecision(6)).toLocaleString('en') : formatCount(mark);
    context.textAlign = index === 0 ? 'left' : mark / end > 0.96 ? 'right' : 'center';
    context.fillText(`${text}${index === 0 ? (clock ? unit.name : ' events') : ''}`, x, floor + 12);
    context.fillRect(Math.round(x), floor, 1, 4);
  });
}
