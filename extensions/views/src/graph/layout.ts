/**
 * Places every visible box, from the innermost out, and then hands out absolute positions.
 *
 * Everything here is a pure function of the record and of which boxes are open, so a drawing looks
 * the same every time and opening a box moves nothing that comes before it.
 */
import {
  entryKey,
  keyOf,
  parentOf,
  shareEdges,
  visibleEdges,
  type Part,
  type VisibleEdge,
} from './edges';
import { countOps, size, type Group, type Item, type Tree } from './groups';
import { crossings, endBeside, gapBefore } from './header';
import { HEADER, headerRoom, leafExtent, PADDING, type Chip } from './nodes';
import { isOperation, type Flow } from './operations';
import { place, type Extent, type Link, type Placement } from './place';
import { plan } from './plan';
import { route, type Routed } from './route';
import { settle } from './settle';
import { representatives } from './visible';

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

/** A piece of one or more edges. */
export interface Line {
  points: number[];
  edges: number[];
  bytes: number;
  /** Whether the edge ends here, so an arrowhead is due. */
  arrow: boolean;
  /** Whether nothing flows along it: it leads to or from a test. */
  soft: boolean;
}

export interface Layout {
  root: Box;
  boxes: Map<Item, Box>;
  edges: VisibleEdge[];
}

/** A box before it has a place: positions from its own axis and top. */
export interface Local {
  extent: Extent;
  children: { item: Item; local: Local; x: number; y: number; trunk: boolean }[];
  lines: Line[];
  entries: Map<string, number>;
  exits: Map<Item, number>;
}

/** Lays out the tree with the given boxes open; `widthOf` maps bytes to the width of a line. */
export function layout(
  tree: Tree,
  flows: readonly Flow[],
  open: ReadonlySet<Group>,
  widthOf: (bytes: number) => number,
  testFlows: readonly Flow[] = [],
): Layout {
  const edges = visibleEdges(flows, representatives(tree, open), testFlows);
  const parts = shareEdges(tree, edges);
  const local = arrange(tree.root, open, parts, widthOf, new Set());
  const boxes = new Map<Item, Box>();
  const root = settle(tree.root, local, null, 0, 0, true, boxes);
  return { root, boxes, edges };
}

function arrange(
  group: Group,
  open: ReadonlySet<Group>,
  parts: ReadonlyMap<Group, Part[]>,
  widthOf: (bytes: number) => number,
  preferred: ReadonlySet<Item>,
): Local {
  const items = group.children;
  const position = new Map(items.map((item, index) => [item, index]));
  const mine = parts.get(group) ?? [];
  const bare = mine.map((part) => ({
    from: part.from === null ? -1 : (position.get(part.from) ?? -1),
    to: part.to === null ? items.length : (position.get(part.to) ?? items.length),
    width: widthOf(part.bytes),
    soft: part.soft,
  }));
  const starts = mine.flatMap(({ from, to, target, soft }, index) =>
    !soft && from === null && to && target && preferred.has(target) ? [bare[index]?.to ?? 0] : [],
  );
  // Without a trunk to go on from, one that starts at what comes in beats one that starts here.
  const entered = bare.flatMap(({ from, to, soft }) =>
    !soft && from < 0 && to < items.length ? [to] : [],
  );
  const planned = plan(items.map(size), bare, new Set(starts.length > 0 ? starts : entered));
  const before = predecessors(planned.chains, items);
  const locals = items.map((item, index) => {
    if (isOperation(item) || !open.has(item)) return null;
    const fed = mine.filter(({ from, to }) => to === item && from === (before[index] ?? null));
    const wanted = fed.flatMap(({ target }) => (target ? [target] : []));
    return arrange(item, open, parts, widthOf, new Set(wanted));
  });
  const inputs = new Map<Item | null, number>();
  for (const { to, soft } of mine) if (!soft) inputs.set(to, (inputs.get(to) ?? 0) + 1);
  const links = mine.map((part, index): Link => {
    const { from, to, width } = bare[index] ?? { from: -1, to: items.length, width: 1 };
    return {
      from,
      to,
      width,
      fromX: (part.source && locals[from]?.exits.get(part.source)) ?? 0,
      toX: part.target ? entryPort(locals[to], part) : 0,
      source: part.source === null ? `in ${index}` : `${from} ${keyOf(part.source)}`,
      side: part.to?.kind === 'operation' && (inputs.get(part.to) ?? 0) > (part.soft ? 0 : 1),
      soft: part.soft,
    };
  });
  const extents = items.map(
    (item, index) => locals[index]?.extent ?? leafExtent(item, planned.trunk[index] ?? false),
  );
  const large = new Array<boolean>(planned.rows).fill(false);
  items.forEach((item, index) => {
    if (!isOperation(item)) large[planned.rank[index]] = true;
  });
  const margins = {
    edge: PADDING,
    above: (row: number) => (large[row] || large[row - 1] ? 18 : 13),
  };
  for (const spanning of [true, false]) {
    const placed = place(planned, links, extents, spanning);
    const routed = route(links, placed, extents, margins);
    if (routed) return frame(group, items, locals, mine, placed, extents, routed);
  }
  throw new Error('a box without tall items can always be routed');
}

/** The item before each one in its chain, null for heads. */
function predecessors(chains: readonly number[][], items: readonly Item[]): (Item | null)[] {
  const before = new Array<Item | null>(items.length).fill(null);
  for (const chain of chains)
    chain.forEach((item, at) => {
      before[item] = at > 0 ? (items[chain[at - 1] ?? -1] ?? null) : null;
    });
  return before;
}

function frame(
  group: Group,
  items: readonly Item[],
  locals: readonly (Local | null)[],
  parts: readonly Part[],
  placed: Placement,
  extents: readonly Extent[],
  routed: Routed,
): Local {
  const { x, rank, trunk } = placed;
  const header = group.kind === 'root' ? 0 : HEADER;
  let left = headerRoom(`${group.title}`, 44);
  let right = headerRoom(`${group.cls} · ${countOps(group)} · 1000 KiB`, 20);
  extents.forEach((extent, index) => {
    left = Math.max(left, extent.left - x[index] + PADDING);
    right = Math.max(right, extent.right + x[index] + PADDING);
  });
  const entries = new Map<string, number>();
  const exits = new Map<Item, number>();
  const height = header + routed.height;
  const lines = parts.map((part, index): Line => {
    const points = (routed.points[index] ?? []).map((value, at) =>
      at % 2 ? value + header : value,
    );
    if (part.from === null) points[1] = 0;
    for (let at = 0; at < points.length; at += 2) {
      right = Math.max(right, points[at] + PADDING);
      left = Math.max(left, PADDING - points[at]);
    }
    const port = routed.portX[index];
    if (part.from === null && part.target) entries.set(entryKey(part.source, part.target), port);
    if (part.to === null && part.source) exits.set(part.source, port);
    const arrow = part.to !== null && part.to === part.target;
    return { points, edges: part.edges, bytes: part.bytes, arrow, soft: part.soft };
  });
  const crossed = header > 0 ? crossings(lines, 0) : [];
  const room = `${countOps(group)} · 1000 KiB`.length * 6.2;
  if (gapBefore(crossed, 0, right - PADDING, room) === null)
    right = Math.max(right, endBeside(crossed, room) + PADDING);
  const children = items.map((item, index) => ({
    item,
    local: locals[index] ?? leaf(extents[index]),
    x: x[index],
    y: header + routed.tops[rank[index]],
    trunk: trunk[index] ?? false,
  }));
  return { extent: { left, right, height }, children, lines, entries, exits };
}

/** Where a part enters its target: a port of its own source, or the one all sources share. */
function entryPort(local: Local | null | undefined, { source, target }: Part): number {
  if (!local || !target) return 0;
  return (
    (source ? local.entries.get(entryKey(source, target)) : undefined) ??
    local.entries.get(entryKey(null, target)) ??
    0
  );
}

function leaf(extent: Extent | undefined): Local {
  return {
    extent: extent ?? { left: 0, right: 0, height: 0 },
    children: [],
    lines: [],
    entries: new Map(),
    exits: new Map(),
  };
}

/** The visible box that stands for an operation or a group. */
export function boxOf(tree: Tree, result: Layout, item: Item): Box | undefined {
  for (let at: Item | null = item; at; at = parentOf(tree, at)) {
    const box = result.boxes.get(at);
    if (box) return box;
  }
  return undefined;
}
