/**
 * Places every visible box, from the innermost out, and then hands out absolute positions.
 *
 * Everything here is a pure function of the record and of which boxes are open, so a drawing looks
 * the same every time and opening a box moves nothing that comes before it.
 */
import { parentOf, shareEdges, visibleEdges, type Part, type VisibleEdge } from './edges';
import { size, type Group, type Item, type Tree } from './groups';
import type { Flow, Leaf } from './operations';
import { place, type Extent, type Link } from './place';
import { route } from './route';
import { representatives } from './visible';

export const NODE_WIDTH = 152;
export const NODE_HEIGHT = 36;
export const CARD_HEIGHT = 32;
export const HEADER = 26;
const PADDING = 10;
const CHIP_GAP = 12;
const CHIP_HEIGHT = 20;
/** Left of the operation that made the loss, for its value. */
const LOSS_ROOM = 116;
/** Chips shown at one operation; further ones are counted on the last. */
export const CHIPS = 2;

/** A visible node or an open box, in drawing coordinates. */
export interface Box {
  item: Item;
  parent: Box | null;
  open: boolean;
  depth: number;
  x: number;
  y: number;
  width: number;
  height: number;
  /** x of the line that goes through it. */
  axis: number;
  /** The part of an operation that is the node itself; the rest are chips. */
  node: { x: number; width: number };
  chips: Chip[];
  children: Box[];
  lines: Line[];
}

export interface Chip {
  leaf: Leaf;
  text: string;
  more: number;
  x: number;
  y: number;
  width: number;
}

/** A piece of one or more edges. */
export interface Line {
  points: number[];
  edges: number[];
  bytes: number;
  /** Whether the edge ends here, so an arrowhead is due. */
  arrow: boolean;
}

export interface Layout {
  root: Box;
  boxes: Map<Item, Box>;
  edges: VisibleEdge[];
}

interface Local {
  extent: Extent;
  children: { item: Item; local: Local; x: number; y: number; trunk: boolean }[];
  lines: Line[];
  entries: Map<Item, number>;
  exits: Map<Item, number>;
}

/** Lays out the tree with the given boxes open; `widthOf` maps bytes to the width of a line. */
export function layout(
  tree: Tree,
  flows: readonly Flow[],
  open: ReadonlySet<Group>,
  widthOf: (bytes: number) => number,
): Layout {
  const edges = visibleEdges(flows, representatives(tree, open));
  const parts = shareEdges(tree, edges);
  const local = arrange(tree.root, open, parts, widthOf);
  const boxes = new Map<Item, Box>();
  const root = settle(tree.root, local, null, 0, 0, true, boxes);
  return { root, boxes, edges };
}

function arrange(
  group: Group,
  open: ReadonlySet<Group>,
  parts: ReadonlyMap<Group, Part[]>,
  widthOf: (bytes: number) => number,
): Local {
  const items = group.children;
  const locals = items.map((item) =>
    item.kind !== 'operation' && open.has(item) ? arrange(item, open, parts, widthOf) : null,
  );
  const position = new Map(items.map((item, index) => [item, index]));
  const mine = parts.get(group) ?? [];
  const inputs = new Map<Item | null, number>();
  for (const part of mine) inputs.set(part.to, (inputs.get(part.to) ?? 0) + 1);
  const links = mine.map((part, index): Link => {
    const from = part.from === null ? -1 : (position.get(part.from) ?? -1);
    const to = part.to === null ? items.length : (position.get(part.to) ?? items.length);
    const source = part.source === null ? `in ${index}` : `${from} ${key(part.source)}`;
    return {
      from,
      to,
      fromX: (part.source && locals[from]?.exits.get(part.source)) ?? 0,
      toX: (part.target && locals[to]?.entries.get(part.target)) ?? 0,
      source,
      width: widthOf(part.bytes),
      side: part.to?.kind === 'operation' && (inputs.get(part.to) ?? 0) > 1,
    };
  });
  const extentOf = (index: number, trunk: boolean): Extent =>
    locals[index]?.extent ?? leafExtent(items[index], trunk);
  const placed = place(items.length, links, extentOf);
  const extents = items.map((_, index) => extentOf(index, placed.trunk[index] ?? false));
  const large = new Array<boolean>(placed.rows).fill(false);
  items.forEach((item, index) => {
    if (item.kind !== 'operation') large[placed.rank[index] ?? 0] = true;
  });
  const routed = route(links, placed, extents, {
    edge: PADDING,
    above: (row) => (large[row] || large[row - 1] ? 18 : 13),
  });
  return frame(group, items, locals, mine, placed.x, placed.rank, placed.trunk, extents, routed);
}

function frame(
  group: Group,
  items: readonly Item[],
  locals: readonly (Local | null)[],
  parts: readonly Part[],
  x: readonly number[],
  rank: readonly number[],
  trunk: readonly boolean[],
  extents: readonly Extent[],
  routed: ReturnType<typeof route>,
): Local {
  const header = group.kind === 'root' ? 0 : HEADER;
  let left = headerRoom(`${group.title}`, 44);
  let right = headerRoom(`${group.cls} · ${size(group)} ops · 1000 KiB`, 20);
  extents.forEach((extent, index) => {
    left = Math.max(left, extent.left - (x[index] ?? 0) + PADDING);
    right = Math.max(right, extent.right + (x[index] ?? 0) + PADDING);
  });
  const entries = new Map<Item, number>();
  const exits = new Map<Item, number>();
  const height = header + routed.height;
  const lines = parts.map((part, index): Line => {
    const points = (routed.points[index] ?? []).map((value, at) =>
      at % 2 ? value + header : value,
    );
    if (part.from === null) points[1] = 0;
    for (let at = 0; at < points.length; at += 2) {
      right = Math.max(right, (points[at] ?? 0) + PADDING);
      left = Math.max(left, PADDING - (points[at] ?? 0));
    }
    const port = routed.portX[index] ?? 0;
    if (part.from === null && part.target) entries.set(part.target, port);
    if (part.to === null && part.source) exits.set(part.source, port);
    const arrow = part.to !== null && part.to === part.target;
    return { points, edges: part.edges, bytes: part.bytes, arrow };
  });
  const children = items.map((item, index) => ({
    item,
    local: locals[index] ?? leaf(extents[index]),
    x: x[index] ?? 0,
    y: header + (routed.tops[rank[index] ?? 0] ?? 0),
    trunk: trunk[index] ?? false,
  }));
  return { extent: { left, right, height }, children, lines, entries, exits };
}

function key(item: Item): string {
  return item.kind === 'operation' ? `o${item.id}` : `g${item.id}`;
}

/** Room a header's text asks for on one side of the axis; a hostile name gets no more than 180. */
function headerRoom(text: string, extra: number): number {
  return Math.min(180, Math.max(NODE_WIDTH / 2 + PADDING, text.length * 6.5 + extra));
}

function leaf(extent: Extent | undefined): Local {
  const none = new Map<Item, number>();
  return {
    extent: extent ?? { left: 0, right: 0, height: 0 },
    children: [],
    lines: [],
    entries: none,
    exits: none,
  };
}

function leafExtent(item: Item | undefined, trunk: boolean): Extent {
  if (!item || item.kind !== 'operation') return { left: 160, right: 160, height: CARD_HEIGHT };
  const chips = chipWidth(item.leaves);
  const room = NODE_WIDTH / 2 + (chips > 0 ? chips + CHIP_GAP : 0);
  const plain = NODE_WIDTH / 2;
  const left = Math.max(trunk ? room : plain, item.loss ? plain + LOSS_ROOM : 0);
  return { left, right: trunk ? plain : room, height: NODE_HEIGHT };
}

function chipText(leaf: Leaf): string {
  const name = leaf.name.split('.').pop() ?? leaf.name;
  return `${name.length > 14 ? `${name.slice(0, 13)}…` : name} ${leaf.shape}`;
}

function chipWidth(leaves: readonly Leaf[]): number {
  return leaves
    .slice(0, CHIPS)
    .reduce((width, leaf) => Math.max(width, Math.min(136, chipText(leaf).length * 6 + 26)), 0);
}

/** Absolute positions, from the outside in. `axis` and `top` are where the box's axis and top are. */
function settle(
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
  if (item.kind === 'operation') {
    box.node = { x: axis - NODE_WIDTH / 2, width: NODE_WIDTH };
    box.chips = chipsOf(item.leaves, box, trunk);
  }
  box.children = local.children.map((child) =>
    settle(child.item, child.local, box, axis + child.x, top + child.y, child.trunk, boxes),
  );
  return box;
}

function chipsOf(leaves: readonly Leaf[], box: Box, trunk: boolean): Chip[] {
  const shown = leaves.slice(0, CHIPS);
  const top = box.y + (NODE_HEIGHT - shown.length * CHIP_HEIGHT) / 2 + 1;
  return shown.map((leaf, index) => {
    const text = chipText(leaf);
    const width = Math.min(136, text.length * 6 + 26);
    const x = trunk ? box.node.x - CHIP_GAP - width : box.node.x + NODE_WIDTH + CHIP_GAP;
    const more = index === shown.length - 1 ? leaves.length - shown.length : 0;
    return { leaf, text, more, x, y: top + index * CHIP_HEIGHT, width };
  });
}

/** The visible box that stands for an operation or a group. */
export function boxOf(tree: Tree, result: Layout, item: Item): Box | undefined {
  for (let at: Item | null = item; at; at = parentOf(tree, at)) {
    const box = result.boxes.get(at);
    if (box) return box;
  }
  return undefined;
}
