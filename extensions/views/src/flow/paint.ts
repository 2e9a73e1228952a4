/** Draws the strip: labels, cells, the marks above them, the steps below. */
import { fitText } from '../graph/text';
import type { Palette } from '../graph/theme';
import { paintCaptured, paintCursor, paintMarks, paintShown, paintSteps } from './paint-marks';
import { levelOf, type FlowColumns, type Limits, type Strip } from './strip';

export const TOP = 14;
export const BOTTOM = 22;
export const RIGHT = 10;
/** Height of a row; that of a strip of many rows below another view. */
export const ROW = 16;
export const LOW_ROW = 12;

/** Where a strip is in its canvas, in CSS pixels. */
export interface Place {
  readonly width: number;
  /** Left edge of the cells. */
  readonly left: number;
  readonly cell: number;
  /** Height of a row. */
  readonly row: number;
}

/** A cell of the strip. */
export interface Spot {
  readonly row: number;
  readonly cell: number;
}

/** A step that is marked, and the cell that holds it. */
export interface Mark {
  readonly cell: number;
  readonly step: number;
}

export interface Picture {
  readonly record: FlowColumns;
  readonly strip: Strip;
  readonly limits: Limits | null;
  readonly place: Place;
  /** Captured steps: outlined, their number below. */
  readonly captured: readonly Mark[];
  /** The step that is looked at: outlined, its number on a pill. */
  readonly shown: readonly Mark[];
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
  for (const mark of picture.captured) paintCaptured(context, palette, picture, mark);
  for (const mark of picture.shown) paintShown(context, palette, picture, mark);
  paintCursor(context, palette, picture);
}

function paintLabels(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { record, place }: Picture,
): void {
  context.font = `${Math.min(12, place.row - 1)}px ${palette.font}`;
  context.fillStyle = palette.ink;
  context.textAlign = 'right';
  record.rows.forEach(({ label }, row) => {
    const text = fitText(context, label, place.left - 14);
    context.fillText(text, place.left - 6, TOP + (row + 0.5) * place.row);
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
  const [x, y] = [place.left + cell * place.cell, TOP + row * place.row];
  const [width, height] = [place.cell - gap, place.row - 1];
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
