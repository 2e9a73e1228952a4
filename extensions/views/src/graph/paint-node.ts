/** Draws one operation with its parameters. */
import type { Shade } from './colour';
import type { Box } from './layout';
import { NODE_HEIGHT, type Chip } from './nodes';
import type { Operation } from './operations';
import { round, type Scene } from './paint';
import { fillBox, strengthOf } from './shade';
import { drawText } from './text';

/** Left and right of a node's text: `batch_norm` and `16.0 MiB` fit at 90 %, in a wide font too. */
const INSET = 5;

/** Sets the font; text never gets smaller than 11 pixels. Returns its size in drawing units. */
export function font(scene: Scene, pixels: number, bold = false): number {
  const size = Math.max(pixels, 11 * scene.pixel);
  scene.context.font = `${bold ? '600 ' : ''}${size}px ${scene.palette.font}`;
  return size;
}

/** The node of an operation with its parameters. */
export function paintOperation(scene: Scene, box: Box, operation: Operation): void {
  const { context, palette, state, detail } = scene;
  if (operation.test) {
    state.paintAsked?.(scene, box, operation);
    return;
  }
  const shade = state.shade(operation, palette);
  const { x, width } = box.node;
  const y = box.y;
  context.globalAlpha = strengthOf(state, operation);
  if (detail === 'all') for (const chip of box.chips) paintChip(scene, box, chip);
  const hovered = scene.hovered === box;
  fillBox(scene, shade, { x, y, width, height: NODE_HEIGHT, radius: 6 }, hovered);
  if (detail === 'all') paintLabels(scene, operation, shade, x, y, width);
  else if (detail === 'name') {
    font(scene, 13, true);
    context.fillStyle = shade.ink;
    context.textAlign = 'left';
    drawText(context, operation.op, x + 8, y + 15, width - 16);
  }
  if (detail === 'all' || detail === 'name') paintBar(scene, operation, x, y, width, shade.ink);
  if (operation.loss && detail !== 'box') paintLoss(scene, box, operation);
  state.decorate?.(scene, box);
  context.globalAlpha = 1;
}

/** An operation from far away: its colour alone. */
export function paintSpeck(scene: Scene, box: Box, operation: Operation): void {
  const { context, palette, state } = scene;
  if (operation.test) return;
  const { fill, bad, mark } = state.shade(operation, palette);
  context.globalAlpha = strengthOf(state, operation);
  const plain = fill === palette.raise ? palette.stroke : fill;
  context.fillStyle = bad ? palette.bad : (mark ?? plain);
  context.fillRect(box.node.x, box.y, box.node.width, NODE_HEIGHT);
  context.globalAlpha = 1;
}

function paintLabels(
  scene: Scene,
  operation: Operation,
  shade: Shade,
  x: number,
  y: number,
  width: number,
): void {
  const { context, palette } = scene;
  const { ink, ink2, figure } = shade;
  font(scene, 12, true);
  const nameWidth = context.measureText(operation.op.slice(0, 60)).width;
  font(scene, 11);
  const rightWidth = figure ? context.measureText(figure).width + 4 : 0;
  const under = shade.detail ?? operation.shape;
  const shapeWidth = context.measureText(under.slice(0, 60)).width;
  // The figure belongs beside the name; a long name sends them to the line below where they fit.
  const room = width - 2 * INSET;
  const below = nameWidth + rightWidth > room && shapeWidth + rightWidth <= room;
  context.fillStyle = shade.bad ? palette.bad : below ? ink2 : ink;
  context.textAlign = 'right';
  context.fillText(figure, x + width - INSET, below ? y + 24 : y + 10.5);
  context.textAlign = 'left';
  context.fillStyle = ink2;
  drawText(context, under, x + INSET, y + 24, below ? room - rightWidth : room);
  font(scene, 12, true);
  context.fillStyle = ink;
  drawText(context, operation.op, x + INSET, y + 10.5, below ? room : room - rightWidth);
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
  const most = state.fullBar;
  if (most <= 0 || operation.saved + operation.shared <= 0) return;
  const full = width - 2 * INSET;
  const own = Math.min(full, (operation.saved / most) * full);
  const held = Math.min(full - own, (operation.shared / most) * full);
  context.fillStyle = ink;
  context.globalAlpha *= 0.18;
  context.fillRect(x + INSET, y + 31, full, 2.5);
  context.globalAlpha /= 0.18;
  if (own > 0) context.fillRect(x + INSET, y + 31, Math.max(1.5, own), 2.5);
  for (let at = own; at < own + held; at += 3) context.fillRect(x + INSET + at, y + 31, 1.5, 2.5);
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
function paintLoss(scene: Scene, box: Box, operation: Operation): void {
  const { context, palette, state } = scene;
  const text = state.lossOf(operation);
  const size = font(scene, 12, true);
  const width = context.measureText(text).width + 28;
  const x = box.node.x - 14 - width;
  const y = box.y + NODE_HEIGHT / 2;
  context.fillStyle = palette.ink;
  context.fillRect(x + width, y - 0.75, 14, 1.5);
  round(context, x, y - size, width, 2 * size, size);
  context.fill();
  context.fillStyle = palette.canvas;
  context.textAlign = 'center';
  context.fillText(text, x + width / 2, y + 0.5);
}
