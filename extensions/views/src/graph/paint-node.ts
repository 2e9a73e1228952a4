/** Draws one operation, one collapsed card, or the header of an open box. */
import { fillOf } from './colour';
import { formatBytes, plural } from './format';
import { countRepeats, size, type Group } from './groups';
import { CARD_HEIGHT, HEADER, NODE_HEIGHT, type Box, type Chip } from './layout';
import type { Operation } from './operations';
import { round, type Scene } from './paint';
import { drawText, fitText } from './text';

function font(scene: Scene, pixels: number, bold = false): number {
  const size = Math.max(pixels, 11 * scene.pixel);
  scene.context.font = `${bold ? '600 ' : ''}${size}px ${scene.palette.font}`;
  return size;
}

/** The node of an operation with its parameters. */
export function paintOperation(scene: Scene, box: Box, operation: Operation): void {
  const { context, palette, state, detail } = scene;
  const { fill, ink, ink2 } = fillOf(operation, state, palette);
  const { x, width } = box.node;
  const y = box.y;
  if (detail === 'all') for (const chip of box.chips) paintChip(scene, box, chip);
  const faded = state.query !== '' && !state.matched.has(operation);
  context.globalAlpha = faded ? 0.4 : 1;
  context.fillStyle = fill;
  context.strokeStyle = scene.hovered === box ? palette.ink : palette.stroke2;
  context.lineWidth = scene.hovered === box ? 1.5 : 1;
  round(context, x, y, width, NODE_HEIGHT, 6);
  context.fill();
  context.stroke();
  if (detail === 'all') paintLabels(scene, operation, x, y, width, ink, ink2);
  else if (detail === 'name') {
    font(scene, 13, true);
    context.fillStyle = ink;
    context.textAlign = 'left';
    drawText(context, operation.op, x + 8, y + 15, width - 16);
  }
  if (detail === 'all' || detail === 'name') paintBar(scene, operation, x, y, width, ink);
  if (operation === state.root && detail !== 'box') paintLoss(scene, box);
  context.globalAlpha = 1;
}

function paintLabels(
  scene: Scene,
  operation: Operation,
  x: number,
  y: number,
  width: number,
  ink: string,
  ink2: string,
): void {
  const { context } = scene;
  const shared = operation.saved === 0 && operation.shared > 0;
  const bytes = shared ? operation.shared : operation.saved;
  const right = bytes > 0 ? `${shared ? '↑ ' : ''}${formatBytes(bytes)}` : '';
  font(scene, 12, true);
  const nameWidth = context.measureText(operation.op.slice(0, 60)).width;
  font(scene, 11);
  const rightWidth = right ? context.measureText(right).width + 8 : 0;
  const shapeWidth = context.measureText(operation.shape.slice(0, 60)).width;
  // The bytes belong beside the name; a long name sends them to the line below where they fit.
  const room = width - 18;
  const below = nameWidth + rightWidth > room && shapeWidth + rightWidth <= room;
  context.fillStyle = below ? ink2 : ink;
  context.textAlign = 'right';
  context.fillText(right, x + width - 9, below ? y + 24 : y + 11.5);
  context.textAlign = 'left';
  context.fillStyle = ink2;
  drawText(context, operation.shape, x + 9, y + 24, below ? room - rightWidth : room);
  font(scene, 12, true);
  context.fillStyle = ink;
  drawText(context, operation.op, x + 9, y + 11.5, below ? room : room - rightWidth);
}

/** Full bar: the largest operation. Hatched: bytes an earlier operation already held. */
function paintBar(
  scene: Scene,
  operation: Operation,
  x: number,
  y: number,
  width: number,
  ink: string,
): void {
  const { context, state } = scene;
  const most = state.mostSaved;
  if (most <= 0 || operation.saved + operation.shared <= 0) return;
  const full = width - 18;
  const own = Math.min(full, (operation.saved / most) * full);
  const held = Math.min(full - own, (operation.shared / most) * full);
  context.fillStyle = ink;
  context.globalAlpha *= 0.18;
  context.fillRect(x + 9, y + 31, full, 2.5);
  context.globalAlpha /= 0.18;
  if (own > 0) context.fillRect(x + 9, y + 31, Math.max(1.5, own), 2.5);
  for (let at = own; at < own + held; at += 3) context.fillRect(x + 9 + at, y + 31, 1.5, 2.5);
}

function paintChip(scene: Scene, box: Box, chip: Chip): void {
  const { context, palette } = scene;
  const left = chip.x < box.node.x;
  const y = chip.y + 9;
  const from = left ? chip.x + chip.width : chip.x;
  const to = left ? box.node.x : box.node.x + box.node.width;
  const colour =
    palette.categories[chip.leaf.input ? 'buffers' : 'parameters']?.fill ?? palette.ink;
  context.strokeStyle = colour;
  context.lineWidth = 1.25;
  context.beginPath();
  context.moveTo(from, y);
  const middle = box.y + NODE_HEIGHT / 2;
  context.bezierCurveTo((from + to) / 2, y, (from + to) / 2, middle, to, middle);
  context.stroke();
  context.fillStyle = palette.raise;
  context.strokeStyle = palette.stroke;
  context.lineWidth = 1;
  round(context, chip.x, chip.y, chip.width, 18, 9);
  context.fill();
  context.stroke();
  context.fillStyle = colour;
  context.beginPath();
  context.arc(chip.x + 10, y, 3.5, 0, 7);
  context.fill();
  font(scene, 11);
  context.textAlign = 'left';
  const [name = '', shape = ''] = splitLast(chip.text);
  context.fillStyle = palette.ink;
  const label = chip.more > 0 ? `+ ${chip.more + 1} more` : name;
  const used = drawText(context, label, chip.x + 18, y, chip.width - 24);
  context.fillStyle = palette.ink2;
  if (chip.more === 0) drawText(context, shape, chip.x + 21 + used, y, chip.width - 28 - used);
}

function splitLast(text: string): string[] {
  const at = text.lastIndexOf(' ');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/** The loss itself, beside the operation that made it. */
function paintLoss(scene: Scene, box: Box): void {
  const { context, palette, state } = scene;
  const { loss } = state.record;
  const text = loss === null ? 'loss' : `loss ${Number(loss.toPrecision(3))}`;
  font(scene, 12, true);
  const width = context.measureText(text).width + 28;
  const x = box.node.x - 14 - width;
  const y = box.y + NODE_HEIGHT / 2;
  context.fillStyle = palette.ink;
  context.fillRect(x + width, y - 0.75, 14, 1.5);
  round(context, x, y - 12, width, 24, 12);
  context.fill();
  context.fillStyle = palette.canvas;
  context.textAlign = 'center';
  context.fillText(text, x + width / 2, y + 0.5);
}

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
  context.fillText(bytes, right, y);
  font(scene, 11);
  context.fillStyle = palette.ink2;
  const short = `${plural(size(group), 'op')} ·`;
  const fits = (line: string): boolean => context.measureText(line).width <= room - bytesWidth;
  const line = !open || !fits(text) ? short : text;
  if (!fits(line)) return bytesWidth + 10;
  context.fillText(line, right - bytesWidth, y);
  return bytesWidth + context.measureText(line).width + 10;
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
