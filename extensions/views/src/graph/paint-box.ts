/** Draws a collapsed box, or the header of an open one. */
import type { Shade } from './colour';
import { outputOf } from './gradients';
import { countOps, countRepeats, type Group } from './groups';
import { crossings, gapBefore } from './header';
import type { Box } from './layout';
import { CLOSED_HEIGHT, HEADER } from './nodes';
import { round, type Scene } from './paint';
import { font } from './paint-node';
import { fillBox, strengthOf } from './shade';
import { drawText, fitText } from './text';

function summary(group: Group, figure: string): string {
  const parts = group.kind === 'repeat' || !group.cls ? [] : [group.cls];
  parts.push(`${countOps(group)}${figure ? ' ·' : ''}`);
  return parts.join(' · ');
}

/** A box or header stays on its level's surface where the colouring says nothing of modules. */
function shadeOfGroup(scene: Scene, group: Group, open: boolean): Shade {
  const { palette, state, detail } = scene;
  const shade = state.shade(group, palette);
  const { ink, ink2, raise, stroke, level } = palette;
  if (open) return { ...shade, fill: raise, ink, ink2, hatched: false };
  // From far away a collapsed box is a speck, seen against the box around it.
  return shade.fill === raise ? { ...shade, fill: detail === 'box' ? stroke : level[0] } : shade;
}

/** A collapsed box, with a stacked edge. */
export function paintClosed(scene: Scene, box: Box, group: Group): void {
  const { context, palette, state, detail } = scene;
  const { x, y, width } = box;
  context.globalAlpha = strengthOf(state, group);
  context.strokeStyle = palette.stroke;
  context.lineWidth = 1;
  if (detail !== 'box') {
    context.fillStyle = palette.level[1];
    round(context, x + 4, y + 4, width - 8, CLOSED_HEIGHT, 8);
    context.fill();
    context.stroke();
  }
  const shade = shadeOfGroup(scene, group, false);
  fillBox(scene, shade, { x, y, width, height: CLOSED_HEIGHT, radius: 8 }, scene.hovered === box);
  if (detail === 'all' || detail === 'name')
    paintTitle(scene, box, group, shade, CLOSED_HEIGHT / 2, false);
  state.decorate?.(scene, box);
  context.globalAlpha = 1;
}

/** The header of an open box; far out, its name on a plate so that it can still be read. */
export function paintHeader(scene: Scene, box: Box, group: Group): void {
  const { context, palette, detail, pixel } = scene;
  if (detail === 'all' || detail === 'name') {
    paintTitle(scene, box, group, shadeOfGroup(scene, group, true), HEADER / 2, true);
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

function paintTitle(
  scene: Scene,
  box: Box,
  group: Group,
  shade: Shade,
  middle: number,
  open: boolean,
): void {
  const { context, detail, state } = scene;
  const y = box.y + middle;
  chevron(scene, shade.ink2, box.x + 15, y, open);
  const detailWidth = detail === 'all' ? paintDetails(scene, box, group, shade, y, open) : 0;
  // The line into an open box crosses its header at the axis; into a collapsed one ends above it.
  const right = open ? box.axis - box.x - 8 : box.width - detailWidth - 20;
  context.fillStyle = shade.ink;
  context.textAlign = 'left';
  font(scene, 13, true);
  const badge = group.kind === 'repeat' ? ` × ${countRepeats(group)}` : '';
  const badgeWidth = badge ? context.measureText(badge).width : 0;
  const name = drawText(context, group.title, box.x + 28, y, right - 28 - badgeWidth);
  if (badge) context.fillText(badge, box.x + 28 + name, y);
  if (detail !== 'all') return;
  let start = 28 + name + badgeWidth + 8;
  start += paintChip(scene, state.chips(group), box.x + start, y, right - start);
  const last = outputOf(group, state.operations);
  if (open || !last?.shape) return;
  font(scene, 11);
  context.fillStyle = shade.ink2;
  const shape = `→ ${last.shape}`;
  if (context.measureText(shape).width <= right - start) context.fillText(shape, box.x + start, y);
}

/** A chip with the first of `texts` that there is room for. */
function paintChip(
  scene: Scene,
  texts: readonly string[],
  x: number,
  y: number,
  room: number,
): number {
  const { context, palette } = scene;
  font(scene, 11);
  const fits = (label: string): boolean => context.measureText(label).width + 14 <= room;
  const label = texts.find(fits);
  if (!label) return 0;
  const width = context.measureText(label).width + 12;
  context.fillStyle = palette.raise;
  context.strokeStyle = palette.stroke2;
  context.lineWidth = 1;
  round(context, x, y - 8, width, 16, 8);
  context.fill();
  context.stroke();
  context.fillStyle = palette.ink;
  context.fillText(label, x + 6, y + 0.5);
  return width + 8;
}

/** Class, count and figure at the right end, beside lines that come in; returns their room. */
function paintDetails(
  scene: Scene,
  box: Box,
  group: Group,
  shade: Shade,
  y: number,
  open: boolean,
): number {
  const { context, palette } = scene;
  const { figure } = shade;
  const short = `${countOps(group)}${figure ? ' ·' : ''}`;
  // Closed, a module named by its number says what it is.
  const whole = open || /^\d/.test(group.title) ? [summary(group, figure)] : [];
  const lines = [...whole, short, ''];
  const crossed = open ? crossings(box.lines, box.y) : [];
  const left = open ? box.axis + 10 : box.x + box.width * 0.4 + 10;
  font(scene, 11, true);
  const figureWidth = figure ? context.measureText(figure).width + 4 : 0;
  for (const line of lines) {
    font(scene, 11);
    const used = figureWidth + context.measureText(line).width;
    const right = gapBefore(crossed, left, box.x + box.width - 10, used);
    if (right === null) continue;
    context.textAlign = 'right';
    context.fillStyle = shade.ink2;
    context.fillText(line, right - figureWidth, y);
    font(scene, 11, true);
    context.fillStyle = shade.bad ? palette.bad : shade.ink;
    context.fillText(figure, right, y);
    return used + 10;
  }
  return 0;
}

function chevron(scene: Scene, colour: string, x: number, y: number, open: boolean): void {
  const { context } = scene;
  context.strokeStyle = colour;
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
