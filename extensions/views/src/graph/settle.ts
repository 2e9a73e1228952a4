/** Absolute positions of boxes that know only what is inside them. */
import type { Item } from './groups';
import type { Box, Local } from './layout';
import { isOperation } from './operations';
import { chipsOf, NODE_WIDTH } from './nodes';

/** Absolute positions, from the outside in. `axis` and `top` are where the box's axis and top are. */
export function settle(
  item: Item,
  local: Local,
  parent: Box | null,
  axis: number,
  top: number,
  trunk: boolean,
  boxes: Map<Item, Box>,
): Box {
  const { left, right, height } = local.extent;
  const box: Box = {
    item,
    parent,
    open: local.children.length > 0,
    depth: parent ? parent.depth + 1 : 0,
    x: axis - left,
    y: top,
    width: left + right,
    height,
    axis,
    node: { x: axis - left, width: left + right },
    chips: [],
    children: [],
    lines: local.lines.map((line) => ({
      ...line,
      points: line.points.map((value, at) => value + (at % 2 ? top : axis)),
    })),
  };
  boxes.set(item, box);
  if (isOperation(item) && !item.test) {
    box.node = { x: axis - NODE_WIDTH / 2, width: NODE_WIDTH };
    box.chips = chipsOf(item.leaves, box.node.x, top, trunk && !item.loss);
  }
  box.children = local.children.map((child) =>
    settle(child.item, child.local, box, axis + child.x, top + child.y, child.trunk, boxes),
  );
  return box;
}
