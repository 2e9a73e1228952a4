/** What is drawn over the areas: phases, the peak, releases, refusals and the scrubber. */
import { formatBytes, formatCount, plural } from '../graph/format';
import { fitText } from '../graph/text';
import { BOTTOM, LEFT, PHASES, RIGHT, xOf, type ChartView } from './scale';
import { timeAt } from './series';
import { xOfEvent, type Frame, type Height } from './timeline';
import { beside, cross, label, widthOf } from './timeline-pen';
import type { Release } from './releases';

/** The lane of phases above the chart. */
export function paintPhases(frame: Frame, view: ChartView): void {
  const { context, palette, width, height } = frame;
  context.textAlign = 'left';
  for (const { name, start, end } of view.record.phases) {
    const left = Math.max(LEFT, xOf(view, width, start));
    const right = Math.min(width - RIGHT, xOf(view, width, end));
    if (right - left < 2) continue;
    context.fillStyle = palette.level[1];
    context.strokeStyle = palette.stroke;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(left + 0.5, 3.5, right - left - 1, PHASES - 5, 3);
    context.fill();
    context.stroke();
    context.font = `600 11px ${palette.font}`;
    context.fillStyle = palette.ink;
    const middle = 3.5 + (PHASES - 5) / 2;
    const text = fitText(context, name, right - left - 10);
    context.fillText(text, left + 7, middle);
    const used = context.measureText(text).width;
    // a prediction's time is that of the machine it was worked out on
    const took = view.record.is_predicted
      ? null
      : timeAt(view.record, end) - timeAt(view.record, start);
    const note = took === null ? '' : `${took.toFixed(1)} ms`;
    context.font = `11px ${palette.font}`;
    context.fillStyle = palette.ink2;
    if (text === name && used + context.measureText(note).width + 22 < right - left)
      context.fillText(note, left + 14 + used, middle);
    context.strokeStyle = palette.stroke;
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(Math.round(right) + 0.5, PHASES + 2);
    context.lineTo(Math.round(right) + 0.5, height - BOTTOM);
    context.stroke();
    context.setLineDash([]);
  }
}

/** ▼ where the most bytes were live. */
export function paintPeak(frame: Frame, view: ChartView, y: Height): void {
  const { context, palette, width } = frame;
  const { record } = view;
  const position = record.peak_event + 1;
  if (position < view.from || position > view.to || view.hidden.size > 0 || view.filtered) return;
  const x = xOf(view, width, position);
  const top = y(Math.max(record.peak_bytes, record.reserved_bytes)) - 2;
  context.fillStyle = palette.ink;
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x - 5, top - 8);
  context.lineTo(x + 5, top - 8);
  context.fill();
  const cuda = record.reserved_bytes >= 0;
  const bytes = formatBytes(record.peak_bytes);
  const [low = -1, high = -1] = record.peak_interval;
  const between = high > low && low >= 0 ? `, ${formatBytes(low)} to ${formatBytes(high)}` : '';
  const reserved = `${formatBytes(record.reserved_bytes)} reserved${between}`;
  const held = cuda ? `${bytes} allocated, ${reserved}` : bytes;
  const [left, said] = beside(frame, 'Peak', [held, bytes], x, 10);
  label(frame, 'Peak', said, left, Math.max(PHASES + 9, top - 5), palette.ink);
}

/** ⟳ where segments were given back, one mark for those that went together. */
export function paintReleases(frame: Frame, view: ChartView, releases: readonly Release[]): void {
  const { context, palette, width } = frame;
  let taken = 0;
  for (const { first, last, count, bytes } of releases) {
    const from = xOfEvent(view, width, first);
    const to = xOfEvent(view, width, last);
    if (last + 1 < view.from || first + 1 > view.to || from < taken) continue;
    const x = Math.max(LEFT + 8, Math.min(width - RIGHT - 8, (from + to) / 2));
    const y = PHASES + 10;
    context.strokeStyle = palette.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    context.arc(x, y, 4.5, -0.4, 4.9);
    context.stroke();
    context.fillStyle = palette.ink;
    context.beginPath();
    context.moveTo(x + 0.5, y - 7.5);
    context.lineTo(x + 4.5, y - 4.5);
    context.lineTo(x + 0.5, y - 1.5);
    context.fill();
    const segments = plural(count, 'segment');
    const texts = [`${segments}, ${formatBytes(bytes)}`, segments];
    const [left, said] = beside(frame, 'Released', texts, x, 12);
    label(frame, 'Released', said, left, y, palette.ink);
    taken = x + widthOf(frame, 'Released', said) + 24;
  }
}

/** ✕ where the device refused: filled where that is recorded, hollow where it is predicted. */
export function paintRefusals(frame: Frame, view: ChartView, y: Height): void {
  const { palette, width } = frame;
  const { record } = view;
  let taken = 0;
  for (let row = 0; row < record.oom_event.length; row += 1) {
    const event = record.oom_event[row] ?? 0;
    const x = xOfEvent(view, width, event);
    if (event + 1 < view.from || event + 1 > view.to || x < taken) continue;
    const level = y((view.all.reserved ?? view.all.total)[event + 1] ?? 0);
    cross(frame, x, level, !record.is_predicted);
    const free = record.oom_free[row] ?? -1;
    const left = free < 0 ? '' : `, ${formatBytes(free)} free on the device`;
    const requested = `${formatBytes(record.oom_bytes[row] ?? 0)} requested`;
    const room = widthOf(frame, 'Out of memory', requested + left);
    const said = room < width - LEFT - RIGHT - 14 ? requested + left : requested;
    label(frame, 'Out of memory', said, x + 12, level + 15, palette.bad);
    taken = x + 16;
  }
}

/** The brush, the pointer's line and the scrubber with its pill. */
export function paintScrubber(frame: Frame, view: ChartView, y: Height): void {
  const { context, palette, width, height } = frame;
  const floor = height - BOTTOM;
  if (view.brush) {
    const [a = 0, b = 0] = view.brush.map((position) => xOf(view, width, position));
    context.fillStyle = palette.select;
    context.globalAlpha = 0.2;
    context.fillRect(Math.min(a, b), PHASES + 2, Math.abs(b - a), floor - PHASES - 2);
    context.globalAlpha = 1;
  }
  if (view.hover !== null) {
    context.fillStyle = palette.ink2;
    context.fillRect(Math.round(xOf(view, width, view.hover)), PHASES + 2, 1, floor - PHASES - 2);
  }
  if (view.scrubber < view.from || view.scrubber > view.to) return;
  const x = xOf(view, width, view.scrubber);
  context.fillStyle = palette.select;
  context.fillRect(x - 1, PHASES + 2, 2, floor - PHASES + 2);
  const total = view.all.total[view.scrubber] ?? 0;
  if (view.hidden.size === 0 && !view.filtered) {
    context.fillStyle = palette.canvas;
    context.strokeStyle = palette.select;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y(total), 3.5, 0, 7);
    context.fill();
    context.stroke();
  }
  pill(frame, pillText(view, total), x);
}

function pillText(view: ChartView, total: number): string {
  const time = `${timeAt(view.record, view.scrubber).toFixed(1)} ms`;
  const moment = view.axis === 'time' ? time : `${formatCount(view.scrubber)} · ${time}`;
  const reserved = view.all.reserved?.[view.scrubber];
  const of = reserved === undefined ? '' : ` of ${formatBytes(reserved)}`;
  return `${moment} · ${formatBytes(total)}${of}`;
}

function pill(frame: Frame, text: string, x: number): void {
  const { context, palette, width, height } = frame;
  context.font = `600 11px ${palette.font}`;
  const room = context.measureText(text).width + 22;
  const left = Math.min(width - room - 2, Math.max(2, x - room / 2));
  context.fillStyle = palette.select;
  context.beginPath();
  context.roundRect(left, height - BOTTOM + 5, room, 18, 9);
  context.fill();
  context.fillStyle = palette.canvas;
  context.textAlign = 'center';
  context.fillText(text, left + room / 2, height - BOTTOM + 14.5);
}
