/** Outline and sign of what was removed, added or changed, over a box that is drawn already. */
import type { Box } from '../graph/layout';
import { CLOSED_HEIGHT, NODE_HEIGHT } from '../graph/nodes';
import { round, type Scene } from '../graph/paint';
import { strengthOf } from '../graph/shade';
import type { Palette } from '../graph/theme';
import { stateOf, type DiffState } from './change';
import type { DiffColumns } from './columns';

type Marked = Exclude<DiffState, 'same'>;

export type Colours = Record<Marked, { ink: string; fill: string }>;

const TOKENS: Record<Marked, string> = { removed: 'del', added: 'add', changed: 'chg' };
const known = new WeakMap<Palette, Colours>();

/** The colours of the three states in a palette. */
export function coloursOf(palette: Palette): Colours {
  const found = known.get(palette) ?? readColours(palette);
  known.set(palette, found);
  return found;
}

function readColours(palette: Palette): Colours {
  const of = (state: Marked): { ink: string; fill: string } => ({
    ink: palette.token(`--wb-${TOKENS[state]}`),
    fill: palette.token(`--wb-${TOKENS[state]}bg`),
  });
  return { removed: of('removed'), added: of('added'), changed: of('changed') };
}

/** Marks a box and its parameters. A module that changed in parts carries no outline of its own. */
export function paintMark(scene: Scene, box: Box, state: DiffState, record: DiffColumns): void {
  const { item } = box;
  if (item.kind === 'operation' && scene.detail === 'all')
    for (const { leaf, x, y, width } of box.chips) {
      const of = stateOf(record, leaf.row);
      if (of !== 'same') outline(scene, of, { x, y, width, height: 18, radius: 9 }, true);
    }
  if (state === 'same' || (item.kind !== 'operation' && state === 'changed')) return;
  // An open box is drawn at full strength, whatever is lit inside.
  if (box.open) scene.context.globalAlpha = strengthOf(scene.state, item);
  const height = item.kind === 'operation' ? NODE_HEIGHT : box.open ? box.height : CLOSED_HEIGHT;
  const radius = item.kind === 'operation' ? 6 : 8;
  const { x, width } = box.node;
  const hovered = scene.hovered === box;
  outline(scene, state, { x, y: box.y, width, height, radius }, box.open, hovered);
  // From far away a sign would cover what it stands on.
  const room = Math.min(width, height) * scene.camera.zoom;
  if (scene.detail !== 'box' || room > 40) badge(scene, state, x, box.y);
  if (box.open) scene.context.globalAlpha = 1;
}

interface Shape {
  x: number;
  y: number;
  width: number;
  height: number;
  radius: number;
}

/** Dashed for removed, solid otherwise; `over` where a plain outline is drawn already. */
function outline(scene: Scene, state: Marked, shape: Shape, over: boolean, hovered = false): void {
  const { context, palette, pixel } = scene;
  const { x, y, width, height, radius } = shape;
  const { ink, fill } = coloursOf(palette)[state];
  round(context, x, y, width, height, radius);
  if (over) {
    context.strokeStyle = fill;
    context.lineWidth = 2 * Math.max(1, pixel);
    context.stroke();
  }
  context.strokeStyle = hovered ? palette.ink : ink;
  context.lineWidth = (state === 'removed' ? 1.5 : 2) * Math.max(1, pixel);
  if (state === 'removed') context.setLineDash([5, 3].map((part) => part * Math.max(1, pixel)));
  context.stroke();
  context.setLineDash([]);
}

/** A circle with the sign at the top left corner. */
function badge(scene: Scene, state: Marked, x: number, y: number): void {
  const { context, palette, pixel } = scene;
  const { ink, fill } = coloursOf(palette)[state];
  const radius = Math.max(7.5, 5.5 * pixel);
  const half = radius * 0.5;
  const line = (x1: number, y1: number, x2: number, y2: number): void => {
    context.moveTo(x + x1 * half, y + y1 * half);
    context.lineTo(x + x2 * half, y + y2 * half);
  };
  context.fillStyle = fill;
  context.strokeStyle = ink;
  context.lineWidth = radius * 0.19;
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fill();
  context.stroke();
  context.beginPath();
  if (state === 'changed') {
    line(-0.9, -0.4, 0.9, -0.4);
    line(-0.9, 0.4, 0.9, 0.4);
    line(-0.55, 0.95, 0.55, -0.95);
  } else {
    line(-0.9, 0, 0.9, 0);
    if (state === 'added') line(0, -0.9, 0, 0.9);
  }
  context.stroke();
}
