/** What every mark on the timeline is drawn with. */
import { fitText } from '../graph/text';
import { BOTTOM, LEFT, RIGHT } from './scale';
import type { Frame } from './timeline';

/** Height of a label. */
const LINE = 16;
/** Pixels that stay free between a label and the right end of the chart. */
const END = 12;

/** What a label covers. */
export interface Box {
  left: number;
  right: number;
  middle: number;
}

/** Width of what `label` writes. */
export function widthOf({ context, palette }: Frame, bold: string, rest: string): number {
  context.font = `600 11px ${palette.font}`;
  const wide = context.measureText(bold).width;
  context.font = `11px ${palette.font}`;
  return wide + (rest ? 6 : 0) + context.measureText(rest).width;
}

/**
 * A label beside a mark at `x`: where it begins, right of the mark where there is room, else left of
 * it, and which of the texts it says, the first that fits.
 */
export function beside(
  frame: Frame,
  bold: string,
  texts: readonly string[],
  x: number,
  gap: number,
): [left: number, text: string] {
  for (const text of texts) {
    const room = widthOf(frame, bold, text);
    if (x + gap + room <= frame.width - RIGHT - END) return [x + gap, text];
    if (x - gap - room >= LEFT + 2) return [x - gap - room, text];
  }
  return [x + gap, texts.at(-1) ?? ''];
}

/**
 * Text in bold, then more of it, cut to the chart and kept inside of it; below what is written there
 * already.
 */
export function label(
  frame: Frame,
  bold: string,
  rest: string,
  x: number,
  y: number,
  ink: string,
): void {
  const { context, palette, width } = frame;
  const gap = rest ? 6 : 0;
  const wide = widthOf(frame, bold, '');
  context.font = `11px ${palette.font}`;
  const text = fitText(context, rest, width - LEFT - RIGHT - END - 2 - wide - gap);
  const room = wide + gap + context.measureText(text).width;
  const left = Math.max(LEFT + 2, Math.min(width - RIGHT - room - END, x));
  const middle = freeLine(frame, left, left + room, y);
  context.textAlign = 'left';
  context.fillStyle = palette.token('--wb-surface');
  context.globalAlpha = 0.85;
  context.fillRect(left - 3, middle - LINE / 2, room + 6, LINE);
  context.globalAlpha = 1;
  context.fillStyle = palette.ink2;
  context.fillText(text, left + wide + gap, middle);
  context.font = `600 11px ${palette.font}`;
  context.fillStyle = ink;
  context.fillText(bold, left, middle);
}

/** The first line from `y` down where nothing is written, and is from now on; `y` if there is none. */
function freeLine({ labels, height }: Frame, left: number, right: number, y: number): number {
  let middle = y;
  for (;;) {
    const over = labels.find(
      (one) => one.left < right && one.right > left && Math.abs(one.middle - middle) < LINE,
    );
    if (!over) break;
    middle = over.middle + LINE;
  }
  if (middle > height - BOTTOM - LINE / 2) middle = y;
  labels.push({ left, right, middle });
  return middle;
}

/** A cross in a circle: filled where it is recorded, hollow where it is predicted. */
export function cross(
  { context, palette }: Frame,
  x: number,
  level: number,
  filled: boolean,
): void {
  context.fillStyle = filled ? palette.bad : palette.canvas;
  context.strokeStyle = palette.bad;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, level, 6, 0, 7);
  context.fill();
  if (!filled) context.stroke();
  if (filled) context.strokeStyle = palette.canvas;
  context.beginPath();
  for (const side of [-1, 1]) {
    context.moveTo(x - 2.5, level - 2.5 * side);
    context.lineTo(x + 2.5, level + 2.5 * side);
  }
  context.stroke();
}
