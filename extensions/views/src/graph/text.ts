/** Text on a canvas: one line, cut to the room there is. */
import { oneLine } from './format';
import type { Pen } from './pen';

const cleaned = new Map<string, string>();

/** Draws `text` cut to `room`; the end is replaced by `…` where it does not fit. */
export function drawText(context: Pen, text: string, x: number, y: number, room: number): number {
  const line = fitText(context, text, room);
  if (line) context.fillText(line, x, y);
  return line ? context.measureText(line).width : 0;
}

/** The longest beginning of `text` that fits, marked by `…` when it is not all of it. */
export function fitText(context: Pen, text: string, room: number): string {
  if (room <= 4) return '';
  const line = clean(text);
  if (context.measureText(line).width <= room) return line;
  let low = 0;
  let high = line.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${line.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low > 0 ? `${line.slice(0, low)}…` : '';
}

/** Names may hold anything; a drawing gets one line of at most 200 characters. */
function clean(text: string): string {
  const known = cleaned.get(text);
  if (known !== undefined) return known;
  const line = oneLine(text.slice(0, 400)).slice(0, 200);
  if (cleaned.size > 20_000) cleaned.clear();
  cleaned.set(text, line);
  return line;
}
