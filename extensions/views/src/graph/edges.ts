/**
 * Shares the edges out to the boxes they run through.
 *
 * An edge between two visible nodes is drawn in pieces: it leaves every box around its source
 * (`exit`), crosses the innermost box around both (`inner`) and enters every box around its target
 * (`entry`). Each box then routes its own pieces without knowing what is outside it. All edges out
 * of one node share its exits, all edges into one node share its entries; only a value that
 * feeds many nodes of a box enters it once and splits inside.
 */
import type { Group, Item, Tree } from './groups';
import { isOperation, type Flow } from './operations';

/** An edge between two visible nodes; `bytes` is the largest value that flows along it. */
export interface VisibleEdge {
  id: number;
  from: Item;
  to: Item;
  bytes: number;
  /** Whether nothing flows along it: it leads to or from a test. */
  soft?: boolean;
}

/** A piece of one or more edges inside one box, before it has a place. */
export interface Part {
  /** Child of the box it starts in, null when it comes in from outside. */
  from: Item | null;
  /** Child of the box it ends in, null when it leaves. */
  to: Item | null;
  /** Visible node at the start; parts with one source share a port. Null for most entries. */
  source: Item | null;
  /** Visible node at the end; identifies the port. Null for exits. */
  target: Item | null;
  edges: number[];
  bytes: number;
  /** Whether nothing flows along any of its edges. */
  soft: boolean;
}

/**
 * Edges between visible nodes, at most one for each pair; `testFlows` only where their test is
 * shown.
 */
export function visibleEdges(
  flows: readonly Flow[],
  shown: readonly Item[],
  testFlows: readonly Flow[] = [],
): VisibleEdge[] {
  const index = new Map<Item, number>();
  shown.forEach((item) => {
    if (!index.has(item)) index.set(item, index.size);
  });
  const found = new Map<number, VisibleEdge>();
  for (const flow of flows) {
    const from = shown[flow.from];
    const to = shown[flow.to];
    if (!from || !to || from === to) continue;
    const key = (index.get(from) ?? 0) * index.size + (index.get(to) ?? 0);
    const edge = found.get(key);
    if (edge) edge.bytes = Math.max(edge.bytes, flow.bytes);
    else found.set(key, { id: found.size, from, to, bytes: flow.bytes });
  }
  const edges = [...found.values()];
  for (const { from: a, to: b } of testFlows) {
    const [from, to] = [shown[a], shown[b]];
    const isShown = [from, to].some((one) => one?.kind === 'operation' && one.test);
    if (from && to && isShown) edges.push({ id: edges.length, from, to, bytes: 0, soft: true });
  }
  return edges;
}

/** The box directly around an item; null around the root. */
export function parentOf(tree: Tree, item: Item): Group | null {
  return isOperation(item) ? (tree.parents[item.id] ?? null) : item.parent;
}

/** Parts of all edges, by the box they belong to. */
export function shareEdges(tree: Tree, edges: readonly VisibleEdge[]): Map<Group, Part[]> {
  const boxes = new Map<Group, Map<string, Part>>();
  const names = new Map<Item, number>();
  const name = (item: Item | null): number => {
    if (item === null) return -1;
    const known = names.get(item) ?? names.size;
    names.set(item, known);
    return known;
  };
  const add = (
    box: Group,
    part: Omit<Part, 'edges' | 'bytes' | 'soft'>,
    edge: VisibleEdge,
  ): void => {
    const parts = boxes.get(box) ?? new Map<string, Part>();
    boxes.set(box, parts);
    const key = `${name(part.source)}>${name(part.target)}`;
    const known = parts.get(key);
    if (known) {
      known.edges.push(edge.id);
      known.bytes = Math.max(known.bytes, edge.bytes);
      known.soft &&= edge.soft === true;
    } else
      parts.set(key, { ...part, edges: [edge.id], bytes: edge.bytes, soft: edge.soft === true });
  };
  const fans = countFans(tree, edges);
  for (const edge of edges) {
    const { from, to } = edge;
    const above = around(tree, from);
    let end: Item = to;
    let shared = parentOf(tree, to);
    while (shared && !above.has(shared)) {
      const source = fans.enterOnce(shared, from, to) ? from : null;
      add(shared, { from: null, to: end, source, target: to }, edge);
      end = shared;
      shared = shared.parent;
    }
    let start: Item = from;
    let box = parentOf(tree, from);
    while (box && box !== shared) {
      add(box, { from: start, to: null, source: from, target: null }, edge);
      start = box;
      box = box.parent;
    }
    if (shared) add(shared, { from: start, to: end, source: from, target: to }, edge);
  }
  return new Map([...boxes].map(([box, parts]) => [box, [...parts.values()]]));
}

/** Splits inside a box when a value feeds more nodes than this and than the target has sources. */
const FAN = 2;

function countFans(
  tree: Tree,
  edges: readonly VisibleEdge[],
): { enterOnce: (box: Group, from: Item, to: Item) => boolean } {
  const counts = new Map<Group, Map<Item, number>>();
  for (const { from, to, soft } of edges) {
    if (soft) continue;
    const above = around(tree, from);
    for (let box = parentOf(tree, to); box && !above.has(box); box = box.parent) {
      const inBox = counts.get(box) ?? new Map<Item, number>();
      counts.set(box, inBox);
      // Sources are outside the box and targets inside, so one map holds both.
      for (const item of [from, to]) inBox.set(item, (inBox.get(item) ?? 0) + 1);
    }
  }
  return {
    enterOnce: (box, from, to) => {
      const inBox = counts.get(box);
      return (inBox?.get(from) ?? 0) > Math.max(FAN, inBox?.get(to) ?? 0);
    },
  };
}

function around(tree: Tree, item: Item): Set<Group> {
  const above = new Set<Group>();
  for (let up = parentOf(tree, item); up; up = up.parent) above.add(up);
  return above;
}

/** The name of the port by which an edge enters a box. */
export function entryKey(source: Item | null, target: Item): string {
  return `${source ? keyOf(source) : ''}>${keyOf(target)}`;
}

/** A short text that distinguishes items. */
export function keyOf(item: Item): string {
  return isOperation(item) ? `o${item.id}` : `g${item.id}`;
}
