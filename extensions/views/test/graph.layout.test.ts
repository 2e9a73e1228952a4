import { describe, expect, it } from 'vitest';
import type { Box } from '../src/graph/layout';
import { GraphState } from '../src/graph/state';
import { chain, graphOf, random, residual, type NodeSpec } from './graph-data';
import { growth, NEAR_LINEAR } from './growth';

function boxesOf(root: Box): Box[] {
  return [root, ...root.children.flatMap(boxesOf)];
}

function overlap(a: Box, b: Box): boolean {
  const e = 0.01;
  return (
    a.x + e < b.x + b.width &&
    b.x + e < a.x + a.width &&
    a.y + e < b.y + b.height &&
    b.y + e < a.y + a.height
  );
}

/** The drawn node (without chips) is what a line must never run through. */
function runsThrough(points: readonly number[], box: Box): boolean {
  const { x, width } = box.node;
  for (let at = 0; at + 3 < points.length; at += 2) {
    const [x0 = 0, y0 = 0, x1 = 0, y1 = 0] = points.slice(at, at + 4);
    const [left, right] = [Math.min(x0, x1), Math.max(x0, x1)];
    const [top, bottom] = [Math.min(y0, y1), Math.max(y0, y1)];
    const inside =
      right > x + 1 && left < x + width - 1 && bottom > box.y + 1 && top < box.y + box.height - 1;
    if (inside) return true;
  }
  return false;
}

function check(nodes: readonly NodeSpec[], limit?: number): GraphState {
  const state = new GraphState(graphOf(nodes), limit);
  for (const box of boxesOf(state.layout.root)) {
    box.children.forEach((child, index) => {
      expect(child.x).toBeGreaterThanOrEqual(box.x - 0.01);
      expect(child.x + child.width).toBeLessThanOrEqual(box.x + box.width + 0.01);
      expect(child.y + child.height).toBeLessThanOrEqual(box.y + box.height + 0.01);
      for (const other of box.children.slice(index + 1)) expect(overlap(child, other)).toBe(false);
    });
    for (const line of box.lines) {
      expect(line.points.every(Number.isFinite)).toBe(true);
      for (const child of box.children) expect(runsThrough(line.points, child)).toBe(false);
    }
  }
  return state;
}

describe('layout', () => {
  it('keeps a chain in one straight column', () => {
    const { layout } = check(chain(12));
    const axes = new Set(layout.root.children.map(({ axis }) => axis));
    expect(axes.size).toBe(1);
    const line = layout.root.lines[0]?.points ?? [];
    expect(line[0]).toBe(line.at(-2));
  });

  it('draws a skip as a lane beside the trunk that enters at the side', () => {
    const state = check([
      { op: 'relu' },
      { op: 'conv', inputs: [0] },
      { op: 'norm', inputs: [1] },
      { op: 'add', inputs: [2, 0] },
    ]);
    const skip = state.layout.edges.find(
      ({ from, to }) => from === state.operations[0] && to === state.operations[3],
    );
    const line = state.layout.root.lines.find(({ edges }) => edges.includes(skip?.id ?? -1));
    const end = line?.points.slice(-4) ?? [];
    expect(end[1]).toBe(end[3]);
    expect(end[0]).toBeGreaterThan(end[2] ?? Infinity);
  });

  it('continues the trunk of the box around it inside a box', () => {
    // The early branch of the loss is longer, but the late one carries the trunk on.
    const state = check([
      { op: 'conv', module: 'body' },
      { op: 'relu', module: 'body', inputs: [0] },
      { op: 'linear', module: 'aux', inputs: [0] },
      { op: 'tanh', module: 'aux', inputs: [2] },
      { op: 'pool', module: 'head', inputs: [1] },
      { op: 'linear', module: 'head', inputs: [4] },
      { op: 'dropout', module: 'head', inputs: [5] },
      { op: 'late', module: 'loss', inputs: [6] },
      { op: 'early', module: 'loss', inputs: [3] },
      { op: 'mul', module: 'loss', inputs: [8] },
      { op: 'add', module: 'loss', inputs: [7, 9] },
    ]);
    const axis = (op: string): number | undefined =>
      state.box(state.operations.find((o) => o.op === op) ?? null)?.axis;
    expect(axis('late')).toBe(axis('pool'));
    expect(axis('add')).toBe(axis('pool'));
    expect(axis('early')).toBeGreaterThan(axis('late') ?? Infinity);
  });

  it.each(Array.from({ length: 25 }, (_, seed) => seed))(
    'never overlaps boxes or runs a line through one (random graph %i)',
    (seed) => {
      check(random(20 + seed * 4, seed + 1));
    },
  );

  it('is the same every time', () => {
    const nodes = random(80, 7);
    const places = (): string => {
      const { layout } = new GraphState(graphOf(nodes));
      return JSON.stringify(boxesOf(layout.root).map(({ x, y, lines }) => [x, y, lines]));
    };
    expect(places()).toBe(places());
  });

  it('moves nothing that comes before a box that opens', () => {
    const state = check(residual(2), 1);
    const before = boxesOf(state.layout.root).map(({ item, y, axis }) => ({ item, y, axis }));
    const group = state.tree.groups.find(({ path }) => path === 'layers');
    expect(group).toBeDefined();
    if (!group) return;
    const top = state.box(group)?.y ?? 0;
    state.toggle(group);
    for (const { item, y, axis } of before) {
      if (y >= top || item.kind === 'root') continue;
      expect(state.box(item)?.y).toBe(y);
      expect(state.box(item)?.axis).toBe(axis);
    }
  });

  it('gives a value one entry where it feeds many nodes of a box', () => {
    const nodes: NodeSpec[] = [{ op: 'stem' }];
    for (let layer = 0; layer < 6; layer += 1)
      nodes.push({ op: 'cat', module: 'dense', inputs: layer === 0 ? [0] : [layer, 0] });
    const state = check(nodes);
    const box = state.box(state.tree.groups.find(({ path }) => path === 'dense') ?? null);
    const entries = new Set(
      box?.lines.filter(({ points }) => points[1] === box.y).map(({ points }) => points[0]),
    );
    expect(entries.size).toBe(1);
  });

  it('opens a long chain in near-linear time', () => {
    const open = (length: number): (() => void) => {
      const record = graphOf(chain(length));
      return () => void new GraphState(record);
    };
    expect(growth(1_500, open)).toBeLessThan(NEAR_LINEAR);
  });
});
