/** The bars on the canvas: tinted by category, named where there is room. */
import { formatBytes } from '../graph/format';
import { drawText, fitText } from '../graph/text';
import type { Palette } from '../graph/theme';
import { ROW, type Bar } from './layout';
import type { FlameSums } from './sums';
import type { FlameTree } from './tree';
import { CATEGORIES } from '../memory/series';

const HEIGHT = ROW - 1;
const STRIP = 4;
const NAMED = 34;
const PLACED = 150;
const SIZED = 220;

export interface FlameBrush {
  context: CanvasRenderingContext2D;
  palette: Palette;
  tree: FlameTree;
  sums: FlameSums;
  /** Whether a search names the node. */
  found: ((node: number) => boolean) | null;
  /** Nodes of the chosen block. */
  chosen: ReadonlySet<number>;
}

export function paintFlame(brush: FlameBrush, bars: readonly Bar[]): void {
  for (const bar of bars) {
    paintBar(brush, bar);
    if (brush.chosen.has(bar.node)) outline(brush, bar, 2);
  }
}

function paintBar({ context, palette, tree, sums, found }: FlameBrush, bar: Bar): void {
  const { node, x, width } = bar;
  const y = bar.row * ROW;
  const room = Math.max(0.7, width - 1);
  const named = found?.(node) ?? true;
  context.fillStyle = palette.level[0];
  context.fillRect(x, y, room, HEIGHT);
  paintParts(context, palette, sums, bar, named);
  if (found && named) {
    context.strokeStyle = palette.ink;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, Math.max(1, room - 1), HEIGHT - 1);
  }
  if (width < NAMED) return;
  const middle = y + (HEIGHT - STRIP) / 2 + 1;
  const size = formatBytes(sums.total[node] ?? 0);
  context.globalAlpha = named ? 1 : 0.65;
  context.font = `12px ${palette.font}`;
  context.textBaseline = 'middle';
  let end = x + room - 6;
  if (width >= SIZED) {
    context.textAlign = 'right';
    context.fillStyle = palette.ink;
    context.fillText(size, end, middle);
    end -= context.measureText(size).width + 12;
  }
  context.textAlign = 'left';
  context.fillStyle = palette.ink;
  context.font = `600 12px ${palette.font}`;
  const used = drawText(context, tree.name(node), x + 6, middle, end - x - 6);
  const left = end - x - 6 - used - 8;
  const place = tree.place(node);
  if (width >= PLACED && place && left > 30) {
    context.font = `12px ${palette.font}`;
    context.fillStyle = palette.ink2;
    context.fillText(fitText(context, place, left), x + 6 + used + 8, middle);
  }
  context.globalAlpha = 1;
}

/** Its categories side by side: a tint of each, and a strip of the full colour at the foot. */
function paintParts(
  context: CanvasRenderingContext2D,
  palette: Palette,
  sums: FlameSums,
  bar: Bar,
  named: boolean,
): void {
  const y = bar.row * ROW;
  const room = Math.max(0.7, bar.width - 1);
  const scale = room / Math.max(1, sums.total[bar.node] ?? 0);
  let { x } = bar;
  sums.parts.forEach((part, category) => {
    const wide = (part?.[bar.node] ?? 0) * scale;
    if (wide <= 0) return;
    context.fillStyle = palette.categories[CATEGORIES[category] ?? '']?.fill ?? palette.ink2;
    context.globalAlpha = named ? 0.24 : 0.06;
    context.fillRect(x, y, wide, HEIGHT - STRIP);
    context.globalAlpha = named ? 1 : 0.45;
    context.fillRect(x, y + HEIGHT - STRIP, wide, STRIP);
    x += wide;
  });
  context.globalAlpha = 1;
}

/** Marks a bar: the chosen block's, the one under the pointer, the one the keyboard is at. */
export function outline(
  { context, palette }: Pick<FlameBrush, 'context' | 'palette'>,
  bar: Bar,
  width: number,
  colour = palette.select,
): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  const inset = width / 2;
  const wide = Math.max(1, bar.width - 1 - width);
  context.strokeRect(bar.x + inset, bar.row * ROW + inset, wide, HEIGHT - width);
}
