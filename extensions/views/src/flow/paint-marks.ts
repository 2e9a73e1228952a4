/** Draws what stands around the strip's cells: what was left out, steps, captures, the cursor. */
import { formatCount } from '../graph/format';
import type { Palette } from '../graph/theme';
import { TOP, type Mark, type Picture } from './paint';
import { partialRows, ticksOf } from './strip';

/** Pixels between the steps that are written below. */
const TICK_ROOM = 84;

/** ▼ above every cell in which a module did not run that runs at other steps: an early exit, say. */
export function paintMarks(
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

export function paintSteps(
  context: CanvasRenderingContext2D,
  palette: Palette,
  { record, strip, place, captured, shown }: Picture,
): void {
  context.font = `11px ${palette.font}`;
  context.fillStyle = palette.ink2;
  context.textAlign = 'center';
  const y = TOP + strip.rows * place.row + 11;
  const taken = [...captured, ...shown].map(({ cell }) => place.left + (cell + 0.5) * place.cell);
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

/** Outlines a step through all its rows. */
function outline(
  context: CanvasRenderingContext2D,
  { strip, place }: Picture,
  { cell }: Mark,
  width: number,
): void {
  const x = place.left + cell * place.cell;
  context.lineWidth = width;
  context.beginPath();
  context.roundRect(x - 1.5, TOP - 1.5, Math.max(place.cell + 2, 5), strip.rows * place.row + 2, 3);
  context.stroke();
}

/** A captured step that is not the one looked at: its number stands below where there is room. */
export function paintCaptured(
  context: CanvasRenderingContext2D,
  palette: Palette,
  picture: Picture,
  mark: Mark,
): void {
  const { strip, place, captured, shown } = picture;
  context.strokeStyle = context.fillStyle = palette.select;
  outline(context, picture, mark, 1);
  context.font = `600 11px ${palette.font}`;
  context.textAlign = 'center';
  const text = formatCount(mark.step);
  const room = (context.measureText(text).width + 16) / place.cell;
  const taken = ({ cell }: Mark): boolean => Math.abs(cell - mark.cell) < room;
  const before = captured.slice(0, captured.indexOf(mark));
  if (before.some(taken) || shown.some(taken)) return;
  const x = place.left + (mark.cell + 0.5) * place.cell;
  context.fillText(text, x, TOP + strip.rows * place.row + 11);
}

/** The step looked at, its number on a pill below. */
export function paintShown(
  context: CanvasRenderingContext2D,
  palette: Palette,
  picture: Picture,
  mark: Mark,
): void {
  const { strip, place } = picture;
  context.strokeStyle = context.fillStyle = palette.select;
  outline(context, picture, mark, 2);
  context.font = `600 11px ${palette.font}`;
  const text = formatCount(mark.step);
  const width = context.measureText(text).width + 10;
  const middle = place.left + (mark.cell + 0.5) * place.cell;
  const left = Math.min(place.width - width, middle - width / 2);
  context.beginPath();
  context.roundRect(left, TOP + strip.rows * place.row + 3, width, 16, 4);
  context.fill();
  context.fillStyle = palette.canvas;
  context.textAlign = 'center';
  context.fillText(text, left + width / 2, TOP + strip.rows * place.row + 11.5);
}

export function paintCursor(
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
    const [x, y] = [place.left + at.cell * place.cell, TOP + at.row * place.row];
    context.strokeRect(x - 0.5, y - 0.5, Math.max(place.cell, 3), place.row);
  }
}
