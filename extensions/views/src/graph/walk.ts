/** Where the arrow keys lead from the selection. */
import type { Item } from './groups';
import type { Box } from './layout';
import type { Drawing } from './drawing';

export type Direction = 'up' | 'down' | 'left' | 'right';

/**
 * The next item in a direction. Up and down follow the data: to what the selection used and to what
 * used it, the straightest edge first. Left and right go to the nearest node beside it.
 */
export function step(state: Drawing, direction: Direction): Item | null {
  const { selected, layout } = state;
  const box = state.box(selected);
  if (!selected || !box) return firstLeaf(layout.root)?.item ?? null;
  if (direction === 'up' || direction === 'down') {
    const leaf = box.open ? firstLeaf(box)?.item : selected;
    if (!leaf) return null;
    if (box.open && direction === 'down') return leaf;
    const { before, after } = state.neighbours(leaf);
    const candidates = direction === 'up' ? before : after;
    return nearest(state, box, candidates);
  }
  return beside(box, direction);
}

function nearest(state: Drawing, from: Box, candidates: readonly Item[]): Item | null {
  let best: Item | null = null;
  let least = Infinity;
  for (const item of candidates) {
    const box = state.box(item);
    if (!box) continue;
    const distance = Math.abs(box.axis - from.axis) * 4 + Math.abs(box.y - from.y);
    if (distance < least) [best, least] = [item, distance];
  }
  return best;
}

/** The closest node to the left or right within the same box, then within the boxes around it. */
function beside(from: Box, direction: 'left' | 'right'): Item | null {
  const sign = direction === 'left' ? -1 : 1;
  for (let around = from.parent; around; around = around.parent) {
    let best: Item | null = null;
    let least = Infinity;
    for (const child of around.children) {
      const distance = sign * (child.axis - from.axis);
      if (child === from || distance <= 1) continue;
      const cost = distance + Math.abs(child.y - from.y) * 3;
      if (cost < least) [best, least] = [child.item, cost];
    }
    if (best) return best;
  }
  return null;
}

function firstLeaf(box: Box): Box | undefined {
  let at: Box | undefined = box.children[0];
  while (at?.open && at.children[0]) at = at.children[0];
  return at;
}
