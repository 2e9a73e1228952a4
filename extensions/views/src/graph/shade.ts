/**
 * Fills of nodes and boxes: colour, hatch and outline as the colouring says, faded where not lit.
 */
import type { Shade } from './colour';
import type { Item } from './groups';
import type { Pen } from './pen';
import type { Scene } from './paint';
import { round } from './paint';
import { isOperation } from './operations';
import type { Drawing } from './drawing';

/** How strongly an item is drawn beside a search or a lit part of the graph. */
export function strengthOf(state: Drawing, item: Item): number {
  if (state.highlight) return state.highlight.has(item) ? 1 : 0.25;
  if (!state.dims || state.matched.has(item)) return 1;
  return isOperation(item) ? 0.4 : 0.5;
}

/** Fills and outlines a rounded box. */
export function fillBox(
  scene: Scene,
  shade: Shade,
  box: { x: number; y: number; width: number; height: number; radius: number },
  hovered: boolean,
): void {
  const { context, palette } = scene;
  round(context, box.x, box.y, box.width, box.height, box.radius);
  context.fillStyle = shade.hatched ? palette.hatchBack : shade.fill;
  context.fill();
  if (shade.hatched) {
    context.fillStyle = hatch(context, palette.hatch);
    context.fill();
  }
  // What carries a mark gets its outline with it.
  if (shade.mark && !hovered) return;
  context.strokeStyle = hovered ? palette.ink : shade.bad ? palette.bad : palette.stroke2;
  context.lineWidth = shade.bad ? 2 : hovered ? 1.5 : 1;
  context.stroke();
}

const SIZE = 7;
const patterns = new WeakMap<Pen, { colour: string; fill: CanvasPattern }>();

/** A fill of thin diagonal lines. */
export function hatch(context: Pen, colour: string): CanvasPattern | string {
  const known = patterns.get(context);
  if (known?.colour === colour) return known.fill;
  const tile = document.createElement('canvas');
  tile.width = tile.height = SIZE;
  const drawing = tile.getContext('2d');
  if (!drawing) return colour;
  drawing.strokeStyle = colour;
  drawing.lineWidth = 1;
  drawing.beginPath();
  for (const shift of [-SIZE, 0, SIZE]) {
    drawing.moveTo(shift, SIZE);
    drawing.lineTo(shift + SIZE, 0);
  }
  drawing.stroke();
  const fill = context.createPattern(tile, 'repeat');
  if (fill) patterns.set(context, { colour, fill });
  return fill ?? colour;
}
