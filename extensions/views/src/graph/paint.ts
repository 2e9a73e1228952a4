/**
 * Draws the visible part of a layout. What is outside the view is skipped box by box, and detail
 * goes as it becomes too small to read: all text from 85 %, name and bar from 60 %, blocks from
 * 30 %, below that boxes with specks of colour. No text is drawn under 11 pixels.
 */
import { DETAILS, type Camera, type Rect } from './camera';
import type { Box, Line } from './layout';
import { paintClosed, paintHeader } from './paint-box';
import { paintLine } from './paint-line';
import { paintOperation, paintSpeck } from './paint-node';
import type { Drawing } from './drawing';
import type { Pen } from './pen';
import { isOperation } from './operations';
import type { Palette } from './theme';

export type Detail = 'all' | 'name' | 'block' | 'box';

export interface Scene {
  context: Pen;
  camera: Camera;
  palette: Palette;
  state: Drawing;
  hovered: Box | null;
  detail: Detail;
  /** One pixel in drawing units. */
  pixel: number;
  view: Rect;
}

/** How much of a node is drawn at a zoom. */
export function detailAt(zoom: number): Detail {
  const [all, name] = DETAILS;
  if (zoom >= all) return 'all';
  if (zoom >= name) return 'name';
  return zoom >= 0.3 ? 'block' : 'box';
}

/** Draws one frame; `ratio` is the device's pixels per CSS pixel. Returns the number of boxes drawn. */
export function paint(
  context: Pen,
  camera: Camera,
  palette: Palette,
  state: Drawing,
  hovered: Box | null,
  ratio: number,
): number {
  const { zoom } = camera;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.canvas;
  context.fillRect(0, 0, camera.width, camera.height);
  context.setTransform(
    ratio * zoom,
    0,
    0,
    ratio * zoom,
    -camera.x * zoom * ratio,
    -camera.y * zoom * ratio,
  );
  context.textBaseline = 'middle';
  const view = camera.view();
  const scene: Scene = {
    context,
    camera,
    palette,
    state,
    hovered,
    detail: detailAt(zoom),
    pixel: 1 / zoom,
    view,
  };
  const count = paintBox(scene, state.layout.root);
  paintSelection(scene);
  return count;
}

/** Pixels below which an operation is not drawn at all. */
const SPECK = 2;

function visible(scene: Scene, box: Box): boolean {
  const { view } = scene;
  const margin = 12;
  return (
    box.x - margin < view.x + view.width &&
    box.x + box.width + margin > view.x &&
    box.y - margin < view.y + view.height &&
    box.y + box.height + margin > view.y
  );
}

function paintBox(scene: Scene, box: Box): number {
  if (!visible(scene, box)) return 0;
  const { context, palette, detail } = scene;
  if (isOperation(box.item)) {
    if (detail !== 'box') paintOperation(scene, box, box.item);
    else if (box.height >= SPECK * scene.pixel) paintSpeck(scene, box, box.item);
    return 1;
  }
  if (!box.open && box.parent) {
    paintClosed(scene, box, box.item);
    return 1;
  }
  if (box.parent) {
    context.fillStyle = palette.level[(box.depth + 1) % 2] ?? palette.raise;
    context.strokeStyle = scene.hovered === box ? palette.stroke2 : palette.stroke;
    context.lineWidth = Math.max(1, scene.pixel);
    round(context, box.x, box.y, box.width, box.height, 8);
    context.fill();
    context.stroke();
  }
  paintLines(scene, box);
  let count = 1;
  for (const child of box.children) count += paintBox(scene, child);
  if (box.parent) {
    paintHeader(scene, box, box.item);
    scene.state.decorate?.(scene, box);
  }
  return count;
}

/** Edges of a box; beside a lit path the others step back. */
function paintLines(scene: Scene, box: Box): void {
  const { context, palette, state } = scene;
  const { highlight } = state;
  if (!highlight) {
    for (const line of box.lines) paintPlain(scene, line);
    return;
  }
  const lit = highlight.edges(state.layout, state.tree, state.open, state.flows);
  const isLit = (line: Line): boolean => line.edges.some((edge) => lit.has(edge));
  context.globalAlpha = 0.25;
  for (const line of box.lines) if (!isLit(line)) paintPlain(scene, line);
  context.globalAlpha = 1;
  for (const line of box.lines) {
    if (!isLit(line)) continue;
    if (highlight.kind === 'filter') paintPlain(scene, line);
    else paintLine(scene, line, palette.select, palette.select);
  }
}

/** A line in its own tone. */
function paintPlain(scene: Scene, line: Line): void {
  const { palette, state, context } = scene;
  const tone = state.tone?.(line, palette);
  if (!tone) {
    paintLine(scene, line, palette.flow, palette.edge);
    return;
  }
  const { globalAlpha } = context;
  context.globalAlpha *= 0.17;
  if (tone.dashed) paintLine(scene, { ...line, arrow: false }, tone.colour, tone.colour);
  context.globalAlpha = globalAlpha;
  if (tone.dashed) context.setLineDash([5, 4]);
  paintLine(scene, { ...line, bytes: 0 }, tone.colour, tone.colour);
  context.setLineDash([]);
}

/** The selection's lines, outline and halo, above everything else. */
function paintSelection(scene: Scene): void {
  const { context, palette, state, pixel } = scene;
  const box = state.box(state.selected);
  if (!box?.parent) return;
  const mine = new Set(
    state.layout.edges.filter((e) => e.from === box.item || e.to === box.item).map((e) => e.id),
  );
  const walk = (at: Box): void => {
    if (!visible(scene, at)) return;
    for (const line of at.lines)
      if (line.edges.some((edge) => mine.has(edge)))
        paintLine(scene, line, palette.select, palette.select);
    for (const child of at.children) if (child.open) walk(child);
  };
  if (mine.size > 0 && !state.highlight) walk(state.layout.root);
  const radius = box.open ? 8 : 6;
  const { x, width } = box.node;
  context.strokeStyle = palette.select;
  context.globalAlpha = 0.2;
  context.lineWidth = 8;
  round(context, x - 2, box.y - 2, width + 4, box.height + 4, radius + 2);
  context.stroke();
  context.globalAlpha = 1;
  context.lineWidth = 2.5 * Math.max(1, pixel);
  round(context, x, box.y, width, box.height, radius);
  context.stroke();
}

/** A rounded rectangle as the current path. */
export function round(
  context: Pen,
  x: number,
  y: number,
  width: number,
  height: number,
  radius: number,
): void {
  context.beginPath();
  context.roundRect(x, y, width, height, Math.min(radius, width / 2, height / 2));
}
