/** Draws the strip: labels, cells, the marks above them, the steps below. */
import { formatCount } from '../graph/format';
import { fitText } from '../graph/text';
import type { Palette } from '../graph/theme';
import { levelOf, partialRows, ticksOf, type FlowColumns, type Limits, type Strip } from './strip';

export const TOP = 14;
export const BOTTOM = 22;
export const RIGHT = 10;
export const ROW = 16;
/** Pixels between the steps that are written below. */
const TICK_ROOM = 84;

/** Where a strip lies in its canvas, in CSS pixels. */
export interface Place {
  readonly width: number;
  /** Left edge of the cells. */
  readonly left: number;
  readonly cell: number;
}

/** A cell of the strip. */
export interface Spot {
  readonly row: number;
  readonly cell: number;
}

export interface Picture {
  readonly record: FlowColumns;
  readonly strip: Strip;
  readonly limits: Limits;
  readonly place: Place;
  /** Cells that are outlined: captured steps. */
  readonly captured: readonly { readonly cell: number; readonly step: number }[];
  readonly cursor: Spot | null;
  readonly hover: Spot | null;
}

export function paintStrip(
  context: CanvasRenderingContext2D,
  palette: Palette,
  picture: Picture,
): void {
  context.textBaseline = 'middle';
  const hatch = hatchOf(context, palette);
  paintLabels(context, palette, picture);
  for (let row = 0; row < picture.strip.rows; row += 1)
    for (let cell = 0; cell < picture.strip.cells; cell += 1)
      paintCell(context, palette, picture, row, cell, hatch);
  paintMarks(context, palette, picture);
  paintSteps(context, palette, picture);
  paintCaptured(context, palette, picture);
  paintCursor(context, palette, picture);
}

function paintLabels(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { record, place }: Picture,
): void {
  context.font = `12px ${palette.font}`;
  context.fillStyle = palette.ink;
  context.textAlign = 'right';
  record.rows.forEach(({ label }, row) => {
    const text = fitText(context, label, place.left - 14);
    context.fillText(text, place.left - 6, TOP + row * ROW + ROW / 2);
  });
}

function paintCell(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { strip, limits, place }: Picture,
  row: number,
  cell: number,
  hatch: CanvasPattern | string,
): void {
  const at = row * strip.cells + cell;
  const missing = strip.missing[at] ?? NaN;
  if (Number.isNaN(missing)) return;
  const gap = place.cell >= 5 ? 1 : 0;
  const [x, y] = [place.left + cell * place.cell, TOP + row * ROW];
  const [width, height] = [place.cell - gap, ROW - 1];
  const norm = strip.norm[at] ?? NaN;
  const level = levelOf(norm, limits);
  context.fillStyle = level < 0 ? palette.raise : (palette.scale[level] ?? palette.raise);
  context.fillRect(x, y, width, height);
  if (norm === 0) paintZero(context, palette, x, y, width, height);
  if (missing > 0) {
    const tall = Math.max(3, Math.round(height * missing));
    for (const style of [palette.hatchBack, hatch]) {
      context.fillStyle = style;
      context.fillRect(x, y + height - tall, width, tall);
    }
  }
  if (norm === Infinity) paintBad(context, palette, x + width / 2, y + height / 2);
}

/** A norm of 0 is no step of the scale: a plain surface with an outline, and the figure if it fits. */
function paintZero(
  context: CanvasRenderingContext2D,
  palette: Palette,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  context.strokeStyle = palette.stroke;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - 1), height - 1);
  if (width < 9) return;
  context.font = `11px ${palette.font}`;
  context.fillStyle = palette.ink2;
  context.textAlign = 'center';
  context.fillText('0', x + width / 2, y + height / 2 + 0.5);
}

/** Not finite: a cross on a disc, readable however narrow the cell is. */
function paintBad(context: CanvasRenderingContext2D, palette: Palette, x: number, y: number): void {
  context.fillStyle = palette.bad;
  context.beginPath();
  context.arc(x, y, 5.5, 0, 7);
  context.fill();
  context.strokeStyle = palette.canvas;
  context.lineWidth = 1.6;
  context.beginPath();
  for (const side of [-1, 1]) {
    context.moveTo(x - 2.5, y - 2.5 * side);
    context.lineTo(x + 2.5, y + 2.5 * side);
  }
  context.stroke();
}

/** ▼ above every cell in which a module did not run that runs at other steps: an early exit, say. */
function paintMarks(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { strip, place }: Picture,
): void {
  context.fillStyle = palette.ink2;
  const rows = partialRows(strip);
  for (let cell = 0; cell < strip.cells; cell += 1) {
    if (!rows.some((row) => (strip.missing[row * strip.cells + cell] ?? 0) > 0)) continue;
    const x = place.left + (cell + 0.5) * place.cell;
    const half = Math.min(4, Math.max(2, place.cell / 2));
    context.beginPath();
    context.moveTo(x - half, TOP - 9);
    context.lineTo(x + half, TOP - 9);
    context.lineTo(x, TOP - 3);
    context.fill();
  }
}

function paintSteps(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { record, strip, place, captured }: Picture,
): void {
  context.font = `11px ${palette.font}`;
  context.fillStyle = palette.ink2;
  context.textAlign = 'center';
  const y = TOP + strip.rows * ROW + 11;
  const taken = captured.map(({ cell }) => place.left + (cell + 0.5) * place.cell);
  let free = -Infinity;
  for (const { cell, step } of ticksOf(record, strip, TICK_ROOM / place.cell)) {
    const text = formatCount(step);
    const half = context.measureText(text).width / 2;
    const x = Math.max(place.left + half, place.left + (cell + 0.5) * place.cell);
    if (x - half < free || x + half > place.width) continue;
    if (taken.some((at) => Math.abs(at - x) < half + 24)) continue;
    context.fillText(text, x, y);
    free = x + half + 12;
  }
}

/** Captured steps: outlined through all rows, their number as a pill below. */
function paintCaptured(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { strip, place, captured }: Picture,
): void {
  for (const { cell, step } of captured) {
    const x = place.left + cell * place.cell;
    context.strokeStyle = context.fillStyle = palette.select;
    context.lineWidth = 2;
    context.beginPath();
    context.roundRect(x - 1.5, TOP - 1.5, Math.max(place.cell + 2, 5), strip.rows * ROW + 2, 3);
    context.stroke();
    context.font = `600 11px ${palette.font}`;
    const text = formatCount(step);
    const width = context.measureText(text).width + 10;
    const left = Math.min(place.width - width, x + place.cell / 2 - width / 2);
    context.beginPath();
    context.roundRect(left, TOP + strip.rows * ROW + 3, width, 16, 4);
    context.fill();
    context.fillStyle = palette.canvas;
    context.textAlign = 'center';
    context.fillText(text, left + width / 2, TOP + strip.rows * ROW + 11.5);
  }
}

function paintCursor(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { place, cursor, hover }: Picture,
): void {
  for (const [at, colour, line] of [
    [hover, palette.ink2, 1],
    [cursor, palette.ink, 2],
  ] as const) {
    if (!at) continue;
    context.strokeStyle = colour;
    context.lineWidth = line;
    const [x, y] = [place.left + at.cell * place.cell, TOP + at.row * ROW];
    context.strokeRect(x - 0.5, y - 0.5, Math.max(place.cell, 3), ROW);
  }
}

function hatchOf(context: CanvasRenderingContext2D, palette: Palette): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 10;
  const brush = tile.getContext('2d');
  if (!brush) return palette.hatch;
  brush.strokeStyle = palette.hatch;
  brush.lineWidth = 2.4;
  brush.beginPath();
  for (const shift of [-10, 0, 10]) {
    brush.moveTo(shift - 1, 11);
    brush.lineTo(shift + 11, -1);
  }
  brush.stroke();
  const pattern = context.createPattern(tile, 'repeat');
  pattern?.setTransform(new DOMMatrix().scale(0.5));
  return pattern ?? palette.hatch;
}
