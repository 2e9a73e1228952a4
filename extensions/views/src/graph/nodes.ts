/** Sizes of what is drawn, and the chips beside an operation. All in drawing units. */
import type { Item } from './groups';
import { isOperation, type Leaf } from './operations';
import type { Extent } from './place';

export const NODE_WIDTH = 152;
export const NODE_HEIGHT = 36;
export const CLOSED_HEIGHT = 32;
/** Of the box of a test that Python made. */
export const ASKED_WIDTH = 248;
export const TEST_HEIGHT = 56;
export const HEADER = 26;
export const PADDING = 10;
const CHIP_GAP = 12;
const CHIP_HEIGHT = 20;
const CHARACTER = 7.5;
const MOST_CHIP = 160;
/** Left of the operation that made the loss, for its value. */
const LOSS_ROOM = 116;
/** Chips shown at one operation; further ones are counted on the last. */
export const CHIPS = 2;

export interface Chip {
  leaf: Leaf;
  text: string;
  more: number;
  x: number;
  y: number;
  width: number;
}

/** Room a header's text needs on one side of the axis; a hostile name gets no more than 180. */
export function headerRoom(text: string, extra: number): number {
  return Math.min(180, Math.max(NODE_WIDTH / 2 + PADDING, text.length * 6.5 + extra));
}

/** Room for a node or a box; parameters stand on the side away from the trunk and from the loss. */
export function leafExtent(item: Item | undefined, trunk: boolean): Extent {
  if (!item || !isOperation(item)) return { left: 160, right: 160, height: CLOSED_HEIGHT };
  const half = ASKED_WIDTH / 2;
  if (item.test) return { left: half, right: half, height: TEST_HEIGHT };
  const chips = chipWidth(item.leaves);
  const room = NODE_WIDTH / 2 + (chips > 0 ? chips + CHIP_GAP : 0);
  const plain = NODE_WIDTH / 2;
  if (item.loss) return { left: plain + LOSS_ROOM, right: room, height: NODE_HEIGHT };
  return { left: trunk ? room : plain, right: trunk ? plain : room, height: NODE_HEIGHT };
}

function chipText(leaf: Leaf): string {
  const name = leaf.name.split('.').pop() ?? leaf.name;
  return `${name.length > 14 ? `${name.slice(0, 13)}…` : name} ${leaf.shape}`;
}

function chipWidth(leaves: readonly Leaf[]): number {
  return leaves
    .slice(0, CHIPS)
    .reduce(
      (width, leaf) => Math.max(width, Math.min(MOST_CHIP, chipText(leaf).length * CHARACTER + 28)),
      0,
    );
}

/** Places the chips of an operation whose node begins at `left` and `top`. */
export function chipsOf(
  leaves: readonly Leaf[],
  left: number,
  nodeTop: number,
  trunk: boolean,
): Chip[] {
  const shown = leaves.slice(0, CHIPS);
  const top = nodeTop + (NODE_HEIGHT - shown.length * CHIP_HEIGHT) / 2 + 1;
  return shown.map((leaf, index) => {
    const text = chipText(leaf);
    const width = Math.min(MOST_CHIP, text.length * CHARACTER + 28);
    const x = trunk ? left - CHIP_GAP - width : left + NODE_WIDTH + CHIP_GAP;
    const more = index === shown.length - 1 ? leaves.length - shown.length : 0;
    return { leaf, text, more, x, y: top + index * CHIP_HEIGHT, width };
  });
}
