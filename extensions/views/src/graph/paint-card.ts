/** Draws a collapsed card, or the header of an open box. */
import { formatBytes, plural } from './format';
import { countRepeats, size, type Group } from './groups';
import type { Box } from './layout';
import { CARD_HEIGHT, HEADER } from './nodes';
import { round, type Scene } from './paint';
import { font } from './paint-node';
import { drawText, fitText } from './text';

function summary(group: Group): { text: string; bytes: string } {
  const parts = group.kind === 'repeat' || !group.cls ? [] : [group.cls];
  parts.push(`${plural(size(group), 'op')} ·`);
  return { text: parts.join(' · '), bytes: formatBytes(group.saved) };
}

/** A collapsed box: one card with a stacked edge. */
export function paintCard(scene: Scene, box: Box, group: Group): void {
  const { context, palette, state, detail } = scene;
  const faded = state.query !== '' && !state.matched.has(group);
  context.globalAlpha = faded ? 0.5 : 1;
  context.strokeStyle = palette.stroke;
  context.lineWidth = 1;
  if (detail !== 'box') {
    context.fillStyle = palette.level[1];
    round(context, box.x + 4, box.y + 4, box.width - 8, CARD_HEIGHT, 8);
    context.fill();
    context.stroke();
  }
  context.fillStyle = palette.level[0];
  context.strokeStyle = scene.hovered === box ? palette.ink : palette.stroke2;
  round(context, box.x, box.y, box.width, CARD_HEIGHT, 8);
  context.fill();
  context.stroke();
  if (detail === 'all' || detail === 'name') paintTitle(scene, box, group, CARD_HEIGHT / 2, false);
  context.globalAlpha = 1;
}

/** The header of an open box; far out, its name on a plate so that it can still be read. */
export function paintHeader(scene: Scene, box: Box, group: Group): void {
  const { context, palette, detail, pixel } = scene;
  if (detail === 'all' || detail === 'name') {
    paintTitle(scene, box, group, HEADER / 2, true);
    return;
  }
  const room = box.width - 8 * pixel;
  if (room < 40 * pixel || box.height < 16 * pixel) return;
  const height = font(scene, 11, true);
  const text = fitText(context, group.title, room - 8 * pixel);
  if (text.length < 3) return;
  const width = context.measureText(text).width;
  context.fillStyle = palette.level[(box.depth + 1) % 2] ?? palette.raise;
  round(
    context,
    box.x + 3 * pixel,
    box.y + 2 * pixel,
    width + 8 * pixel,
    height + 3 * pixel,
    3 * pixel,
  );
  context.fill();
  context.fillStyle = palette.ink;
  context.textAlign = 'left';
  context.fillText(text, box.x + 7 * pixel, box.y + 3.5 * pixel + height / 2);
}

function paintTitle(scene: Scene, box: Box, group: Group, middle: number, open: boolean): void {
  const { context, palette, detail } = scene;
  const y = box.y + middle;
  chevron(scene, box.x + 15, y, open);
  const detailWidth = detail === 'all' ? paintDetails(scene, box, group, y, open) : 0;
  // The line into an open box crosses its header at the axis; a card's ends above it.
  const right = open ? box.axis - box.x - 8 : box.width - detailWidth - 20;
  context.fillStyle = palette.ink;
  context.textAlign = 'left';
  font(scene, 13, true);
  const badge = group.kind === 'repeat' ? ` × ${countRepeats(group)}` : '';
  const badgeWidth = badge ? context.measureText(badge).width : 0;
  const name = drawText(context, group.title, box.x + 28, y, right - 28 - badgeWidth);
  if (badge) context.fillText(badge, box.x + 28 + name, y);
  const last = scene.state.operations[group.end - 1];
  if (open || detail !== 'all' || !last?.shape) return;
  const start = 28 + name + badgeWidth + 8;
  font(scene, 11);
  context.fillStyle = palette.ink2;
  const shape = `→ ${last.shape}`;
  if (context.measureText(shape).width <= right - start) context.fillText(shape, box.x + start, y);
}

/** Class, count and bytes at the right end; returns the room they take. */
function paintDetails(scene: Scene, box: Box, group: Group, y: number, open: boolean): number {
  const { context, palette } = scene;
  const { text, bytes } = summary(group);
  const right = box.x + box.width - 10;
  const room = (open ? box.x + box.width - box.axis : box.width * 0.6) - 20;
  font(scene, 11, true);
  context.textAlign = 'right';
  context.fillStyle = palette.ink;
  const bytesWidth = context.measureText(bytes).width + 4;
  if (bytesWidth > room) return 0;
  font(scene, 11);
  const short = `${plural(size(group), 'op')} ·`;
  const fits = (line: string): boolean => context.measureText(line).width <= room - bytesWidth;
  const line = !open || !fits(text) ? short : text;
  const lineWidth = fits(line) ? context.measureText(line).width : 0;
  const used = bytesWidth + lineWidth;
  if (open) {
    // An edge into the box may cross its header here; it goes on behind the text.
    context.fillStyle = palette.level[(box.depth + 1) % 2] ?? palette.raise;
    context.fillRect(right - used - 3, y - 8, used + 6, 16);
  }
  context.fillStyle = palette.ink2;
  if (lineWidth > 0) context.fillText(line, right - bytesWidth, y);
  font(scene, 11, true);
  context.fillStyle = palette.ink;
  context.fillText(bytes, right, y);
  return used + 10;
}

function chevron(scene: Scene, x: number, y: number, open: boolean): void {
  const { context, palette } = scene;
  context.strokeStyle = palette.ink2;
  context.lineWidth = 1.5;
  context.beginPath();
  if (open) {
    context.moveTo(x - 4.5, y - 2);
    context.lineTo(x, y + 2.5);
    context.lineTo(x + 4.5, y - 2);
  } else {
    context.moveTo(x - 2, y - 4.5);
    context.lineTo(x + 2.5, y);
    context.lineTo(x - 2, y + 4.5);
  }
  context.stroke();
}
