import { describe, expect, it } from 'vitest';
import { foldSame } from '../src/diff/fold-same';
import { ChangeIndex } from '../src/diff/index-of-changes';
import { DiffState, MANY } from '../src/diff/state';
import { arrow, bytesArrow, detailOf, ratio, signedBytes } from '../src/diff/words';
import type { Group, Item } from '../src/graph/groups';
import { nameOf } from '../src/graph/tree-panel';
import type { Palette } from '../src/graph/theme';
import { diffOf, EARLY_EXIT, type UnionSpec } from './diff-data';
import { chain } from './graph-data';
import { growth, NEAR_LINEAR } from './growth';

const names = (items: readonly (Item | null)[]): string[] =>
  items.map((item) => (item ? nameOf(item) : ''));
const stateOf = (nodes: readonly UnionSpec[], options = {}): DiffState =>
  new DiffState(diffOf(nodes), options);

describe('the change of an operation', () => {
  const index = (nodes: readonly UnionSpec[]): ChangeIndex => stateOf(nodes).index;

  it('has both sides where both captures have it, and one where one has', () => {
    const changes = index(EARLY_EXIT);
    expect(changes.of(2)).toMatchObject({
      state: 'changed',
      a: { dtype: 'float32', saved: 8 },
      b: { dtype: 'bfloat16', saved: 4 },
    });
    expect(changes.of(3)).toMatchObject({ state: 'removed', a: { saved: 32 }, b: null });
    expect(changes.of(6)).toMatchObject({ state: 'added', a: null, b: { saved: 2 } });
    expect(changes.of(0).growth).toBeCloseTo(Math.log(4));
  });

  it('is a change when a cast joined an operation that both have', () => {
    const changes = index([
      { op: 'ToCopy', call: 1, state: 'added' },
      { op: 'linear', call: 1, inputs: [0], state: 'changed', b: { dtype: 'bfloat16' } },
    ]);
    expect(changes.of(0)).toMatchObject({
      state: 'changed',
      joined: ['ToCopyBackward0'],
      casts: true,
    });
    expect(detailOf(changes.of(0))).toBe('+cast · bfloat16');
  });

  it('is counted over every box', () => {
    const state = stateOf(EARLY_EXIT);
    const late = state.tree.groups.find(({ path }) => path === 'late') as Item;
    expect(state.index.state(late)).toBe('removed');
    expect(state.index.saved(late)).toEqual({ a: 64, b: 0 });
    const counts = (['removed', 'added', 'changed', 'gradient', 'same'] as const).map((filter) =>
      state.index.count(state.tree.root, filter),
    );
    expect(counts).toEqual([3, 1, 1, 1, 2]);
    expect(state.chips(state.tree.root)[0]).toBe('−3 +1 ≠1');
  });
});

describe('the drawing of a diff', () => {
  it('opens what changed and leaves the rest closed', () => {
    const { tree, open } = stateOf(EARLY_EXIT);
    const opened = tree.groups.filter((group) => open.has(group)).map(({ path }) => path);
    expect(opened).toContain('late');
    expect(opened).not.toContain('stem');
  });

  it('goes from change to change, a removed module in one step, and round the end', () => {
    const state = stateOf(EARLY_EXIT);
    const stops: (Item | null)[] = [];
    for (let step = 0; step < 5; step += 1) {
      const next = state.nextStop(false);
      stops.push(next);
      state.select(next);
    }
    expect(names(stops)).toEqual(['aux', 'late', 'add', 'div', 'aux']);
    state.select(null);
    expect(names([state.nextStop(true)])).toEqual(['div']);
  });

  it('says on a closed box by how much its gradients moved', () => {
    const state = stateOf(EARLY_EXIT);
    const stem = state.tree.groups.find(({ path }) => path === 'stem') as Group;
    expect(state.chips(stem)).toEqual(['▲ × 4.0']);
    state.open.add(stem);
    expect(state.chips(stem)).toEqual([]);
  });

  it('finds lines that only one capture has', () => {
    const state = stateOf(EARLY_EXIT);
    const palette = { token: (name: string) => name } as unknown as Palette;
    const tones = new Map<string, unknown>();
    const walk = (box: (typeof state.layout)['root']): void => {
      for (const line of box.lines)
        for (const id of line.edges) {
          const edge = state.layout.edges[id];
          if (edge) tones.set(names([edge.from, edge.to]).join('>'), state.tone(line, palette));
        }
      box.children.forEach(walk);
    };
    walk(state.layout.root);
    expect(tones.get('aux>div')).toEqual({ colour: '--wb-add', dashed: false });
    expect(tones.get('aux>add')).toEqual({ colour: '--wb-del', dashed: true });
    expect(tones.get('stem>aux')).toBeNull();
  });

  it('counts the calls of a module for each capture by itself', () => {
    const state = stateOf([
      { op: 'a', module: 'head', state: 'added' },
      { op: 'b', module: 'head', inputs: [0], state: 'added' },
      { op: 'mid' },
      { op: 'a', module: 'head', inputs: [2], state: 'removed' },
      { op: 'b', module: 'head', inputs: [3], state: 'removed' },
    ]);
    expect(state.tree.groups.map(({ title }) => title)).not.toContain('head (call 2)');
  });

  it('knows equal captures', () => {
    const state = stateOf(chain(MANY + 1));
    expect(state.index.isEqual).toBe(true);
    expect(state.onlyChanges).toBe(false);
    expect(state.nextStop(false)).toBeNull();
  });
});

describe('only what changed', () => {
  const many = (count: number, every: number): UnionSpec[] =>
    chain(count).map((node, row) => (row % every === 7 ? { ...node, state: 'changed' } : node));

  it('folds unchanged neighbours beside a change and loses no operation', () => {
    const state = stateOf(
      EARLY_EXIT.concat([
        { op: 'x', inputs: [6] },
        { op: 'y', inputs: [7] },
      ]),
      {
        onlyChanges: true,
      },
    );
    const folds = state.tree.groups.filter(({ kind }) => kind === 'fold');
    expect(folds.map(({ title }) => title)).toEqual(['= x … y']);
    const seen: number[] = [];
    const walk = (item: Item): void => {
      if (item.kind === 'operation') seen.push(item.id);
      else item.children.forEach(walk);
    };
    walk(state.tree.root);
    expect(seen).toEqual(state.operations.map(({ id }) => id));
  });

  it('leaves a list alone in which nothing changed', () => {
    const list = stateOf(chain(5)).operations;
    expect(foldSame(() => true)(list, () => expect.fail())).toBe(list);
  });

  it('is how a large diff opens, near-linear in its operations', () => {
    const state = new DiffState(diffOf(many(50_000, 2_500)));
    expect(state.onlyChanges).toBe(true);
    expect(state.stops).toHaveLength(20);
    expect(state.layout.boxes.size).toBeLessThan(100);
    const open = (operations: number): (() => void) => {
      const record = diffOf(many(operations, 2_500));
      return () => void new DiffState(record);
    };
    expect(growth(800, open)).toBeLessThan(NEAR_LINEAR);
  });
});

describe('words of a diff', () => {
  it('writes changes with one unit, true signs and ratios', () => {
    const kib = 1024;
    expect(bytesArrow(8 * kib, 4 * kib)).toBe('8.0 → 4.0 KiB');
    expect(bytesArrow(0, 4 * kib)).toBe('0 B → 4.0 KiB');
    expect(bytesArrow(5, 5)).toBe('5 B');
    expect(signedBytes(-8 * kib)).toBe('−8.0 KiB');
    expect(signedBytes(3)).toBe('+3 B');
    expect([ratio(Math.log(3.4)), ratio(-Math.log(7)), ratio(0.001)]).toEqual([
      '× 3.4',
      '÷ 7.0',
      '',
    ]);
    expect(arrow('float32', 'bfloat16')).toBe('float32 → bfloat16');
    expect(arrow(undefined, 'bfloat16')).toBe('bfloat16');
  });
});
