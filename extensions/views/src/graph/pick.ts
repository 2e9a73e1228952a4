/** What is under a point of the drawing. */
import type { Box } from './layout';
import { isOperation } from './operations';
import { CLOSED_HEIGHT, HEADER } from './nodes';

export interface Hit {
  box: Box;
  /** Whether the point is on what opens or closes the box. */
  handle: boolean;
}

const HANDLE = 28;

/** The innermost box at a point, null for the empty surface. */
export function pick(root: Box, x: number, y: number): Hit | null {
  let box: Box = root;
  for (;;) {
    const inside: Box | undefined = box.children.find((child) => contains(child, x, y));
    if (!inside) break;
    box = inside;
    if (!box.open) break;
  }
  if (box === root) return null;
  const header = box.open ? HEADER : CLOSED_HEIGHT;
  const handle = !isOperation(box.item) && y - box.y <= header && x - box.x <= HANDLE;
  return { box, handle };
}

function contains(box: Box, x: number, y: number): boolean {
  const { x: left, width } = box.node;
  return x >= left && x <= left + width && y >= box.y && y <= box.y + box.height;
}
