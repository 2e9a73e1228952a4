/** Draws the chart: category areas, phases, the peak and the scrubber. */
import { formatBytes, formatCount } from '../graph/format';
import { fitText } from '../graph/text';
import type { Palette } from '../graph/theme';
import { BOTTOM, LEFT, niceTop, PHASES, RIGHT, TOP, xOf, type ChartView } from './scale';
import { CATEGORIES, reduce, timeAt } from './series';

export interface Frame {
  context: CanvasRenderingContext2D;
  palette: Palette;
  width: number;
  height: number;
}

/** Draws everything. */
export function paintTimeline(frame: Frame, view: ChartView): void {
  const { context, palette, width, height } = frame;
  context.fillStyle = palette.canvas;
  context.fillRect(0, 0, width, height);
  context.textBaseline = 'middle';
  const columns = Math.max(2, Math.floor(width - LEFT - RIGHT));
  const picks = reduce(view.series, view.from, view.to + 1, columns);
  const shown = view.series.live.filter((_, category) => !view.hidden.has(category));
  let most = 1;
  for (const at of picks)
    most = Math.max(
      most,
      shown.reduce((sum, v) => sum + (v[at] ?? 0), 0),
    );
  const top = niceTop(Math.max(most, reservedLine(view) ?? 0));
  const y = (bytes: number): number => height - BOTTOM - (bytes / top) * (height - TOP - BOTTOM);
  paintGrid(frame, view, top, y);
  paintAreas(frame, view, picks, y);
  paintPhases(frame, view);
  paintReserved(frame, view, y);
  paintPeak(frame, view, y);
  paintScrubber(frame, view, y);
}

function reservedLine(view: ChartView): number | null {
  return view.record.reserved_bytes >= 0 && view.hidden.size === 0
    ? view.record.reserved_bytes
    : null;
}

function paintGrid(frame: Frame, view: ChartView, top: number, y: (bytes: number) => number): void {
  const { context, palette, width, height } = frame;
  context.font = `11px ${palette.font}`;
  context.lineWidth = 1;
  context.textAlign = 'right';
  for (let part = 0; part <= 4; part += 1) {
    const at = Math.round(y((top * part) / 4)) + 0.5;
    context.strokeStyle = palette.grid;
    context.beginPath();
    context.moveTo(LEFT, at);
    context.lineTo(width - RIGHT, at);
    context.stroke();
    context.fillStyle = palette.ink2;
    context.fillText(part === 0 ? '0' : formatBytes((top * part) / 4), LEFT - 8, at);
  }
  const count = Math.max(2, Math.floor((width - LEFT - RIGHT) / 130));
  for (let tick = 0; tick <= count; tick += 1) {
    const position = Math.round(view.from + ((view.to - view.from) * tick) / count);
    const x = xOf(view, width, position);
    context.textAlign = tick === 0 ? 'left' : tick === count ? 'right' : 'center';
    const label = tick === 0 ? `event ${formatCount(position)}` : formatCount(position);
    context.fillText(label, x, height - BOTTOM + 13);
    context.fillRect(Math.round(x), height - BOTTOM, 1, 4);
  }
}

function paintAreas(
  frame: Frame,
  view: ChartView,
  picks: Int32Array,
  y: (bytes: number) => number,
): void {
  const { context, palette } = frame;
  const base = new Float64Array(picks.length);
  CATEGORIES.forEach((name, category) => {
    if (view.hidden.has(category)) return;
    const values = view.series.live[category];
    const colour = palette.categories[name];
    if (!values || !colour) return;
    context.beginPath();
    context.moveTo(LEFT, y(base[0] ?? 0));
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
  context.strokeStyle = palette.ink;
  context.lineWidth = 1.25;
  context.beginPath();
  base.forEach((bytes, column) => {
    context.lineTo(LEFT + column, y(bytes));
    context.lineTo(LEFT + column + 1, y(bytes));
  });
  context.stroke();
}

function paintPhases(frame: Frame, view: ChartView): void {
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
    context.roundRect(left + 0.5, 4.5, right - left - 1, PHASES - 4, 3);
    context.fill();
    context.stroke();
    context.font = `600 11px ${palette.font}`;
    context.fillStyle = palette.ink;
    const label = fitText(context, name, right - left - 10);
    context.fillText(label, left + 6, 4.5 + (PHASES - 4) / 2);
    const time = timeAt(view.record, end) - timeAt(view.record, start);
    const used = context.measureText(label).width;
    context.font = `11px ${palette.font}`;
    context.fillStyle = palette.ink2;
    const note = `${time.toFixed(1)} ms`;
    if (label === name && used + context.measureText(note).width + 18 < right - left)
      context.fillText(note, left + 12 + used, 4.5 + (PHASES - 4) / 2);
    context.strokeStyle = palette.stroke;
    context.setLineDash([2, 3]);
    for (const x of [left, right]) {
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, PHASES + 2);
      context.lineTo(Math.round(x) + 0.5, height - BOTTOM);
      context.stroke();
    }
    context.setLineDash([]);
  }
}

function paintReserved(frame: Frame, view: ChartView, y: (bytes: number) => number): void {
  const reserved = reservedLine(view);
  if (reserved === null) return;
  const { context, palette, width } = frame;
  context.strokeStyle = palette.ink2;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(LEFT, y(reserved));
  context.lineTo(width - RIGHT, y(reserved));
  context.stroke();
  context.setLineDash([]);
  context.textAlign = 'left';
  context.fillStyle = palette.ink2;
  context.fillText(`reserved at the peak ${formatBytes(reserved)}`, LEFT + 6, y(reserved) - 8);
}

function paintPeak(frame: Frame, view: ChartView, y: (bytes: number) => number): void {
  const { context, palette, width } = frame;
  const position = view.record.peak_event + 1;
  if (position < view.from || position > view.to || view.hidden.size > 0) return;
  const x = xOf(view, width, position);
  const top = y(view.record.peak_bytes);
  context.fillStyle = palette.ink;
  context.beginPath();
  context.moveTo(x, top - 2);
  context.lineTo(x - 5, top - 10);
  context.lineTo(x + 5, top - 10);
  context.fill();
  context.font = `600 11px ${palette.font}`;
  const label = `Peak ${formatBytes(view.record.peak_bytes)}`;
  const room = context.measureText(label).width + 16;
  const left = x + room > width - RIGHT;
  context.textAlign = left ? 'right' : 'left';
  context.fillText(label, x + (left ? -9 : 9), top - 8);
}

function paintScrubber(frame: Frame, view: ChartView, y: (bytes: number) => number): void {
  const { context, palette, width, height } = frame;
  if (view.brush) {
    const [a, b] = view.brush.map((position) => xOf(view, width, position));
    context.fillStyle = palette.select;
    context.globalAlpha = 0.2;
    context.fillRect(Math.min(a ?? 0, b ?? 0), PHASES + 2, Math.abs((b ?? 0) - (a ?? 0)), height);
    context.globalAlpha = 1;
  }
  if (view.hover !== null) {
    context.fillStyle = palette.ink2;
    context.fillRect(
      Math.round(xOf(view, width, view.hover)),
      PHASES + 2,
      1,
      height - BOTTOM - PHASES,
    );
  }
  if (view.scrubber < view.from || view.scrubber > view.to) return;
  const x = xOf(view, width, view.scrubber);
  context.fillStyle = palette.select;
  context.fillRect(x - 1, PHASES + 2, 2, height - BOTTOM - PHASES - 2);
  const total = view.series.total[view.scrubber] ?? 0;
  if (view.hidden.size === 0) {
    context.fillStyle = palette.canvas;
    context.strokeStyle = palette.select;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y(total), 3.5, 0, 7);
    context.fill();
    context.stroke();
  }
  const label = `${formatCount(view.scrubber)} · ${timeAt(view.record, view.scrubber).toFixed(1)} ms · ${formatBytes(total)}`;
  context.font = `600 11px ${palette.font}`;
  const room = context.measureText(label).width + 20;
  const left = Math.min(width - RIGHT - room, Math.max(LEFT, x - room / 2));
  context.fillStyle = palette.select;
  context.beginPath();
  context.roundRect(left, height - 19, room, 18, 9);
  context.fill();
  context.fillStyle = palette.canvas;
  context.textAlign = 'center';
  context.fillText(label, left + room / 2, height - 10);
}
