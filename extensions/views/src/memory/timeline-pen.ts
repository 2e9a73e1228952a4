/** What every mark on the timeline is drawn with. */
import { fitText } from '../graph/text';
import { LEFT, RIGHT } from './scale';
import type { Frame } from './timeline';

/** Width of what `label` writes. */
export function widthOf({ context, palette }: Frame, bold: string, rest: string): number {
  context.font = `600 11px ${palette.font}`;
  const wide = context.measureText(bold).width;
  context.font = `11px ${palette.font}`;
  return wide + (rest ? 6 : 0) + context.measureText(rest).width;
}

/** Text in bold, then more of it, cut to the chart and kept inside of it. */
export function label(
  frame: Frame,
  bold: string,
  rest: string,
  x: number,
  y: number,
  ink: string,
): void {
  const { context, palette, width } = frame;
  context.font = `600 11px ${palette.font}`;
  const wide = context.measureText(bold).width;
  context.font = `11px ${palette.font}`;
  const gap = rest ? 6 : 0;
  const text = fitText(context, rest, width - LEFT - RIGHT - 14 - wide - gap);
  const room = wide + gap + context.measureText(text).width;
  const left = Math.max(LEFT + 2, Math.min(width - RIGHT - room - 12, x));
  context.textAlign = 'left';
  context.fillStyle = palette.token('--wb-surface');
  context.globalAlpha = 0.85;
  context.fillRect(left - 3, y - 8, room + 6, 16);
  context.globalAlpha = 1;
  context.fillStyle = palette.ink2;
  context.fillText(text, left + wide + gap, y);
  context.font = `600 11px ${palette.font}`;
  context.fillStyle = ink;
  context.fillText(bold, left, y);
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
