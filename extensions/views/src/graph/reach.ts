/** How far the drawing reaches: what is laid over it must know. */
import type { Box } from './layout';

/** The right edge of the boxes and lines of a box between two heights; -Infinity for none. */
export function reach({ children, lines }: Box, top: number, bottom: number): number {
  let right = -Infinity;
  for (const { x, y, width, height } of children)
    if (y < bottom && y + height > top) right = Math.max(right, x + width);
  for (const { points } of lines)
    for (let at = 3; at < points.length; at += 2) {
      const [fromX, fromY, toX, toY] = points.slice(at - 3);
      if (Math.min(fromY, toY) < bottom && Math.max(fromY, toY) > top)
        right = Math.max(right, fromX, toX);
    }
  return right;
}
