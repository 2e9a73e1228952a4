import { describe, expect, it } from 'vitest';
import { countRepeats, size } from '../src/graph/groups';
import { LONGEST_LIST } from '../src/graph/rollup';
import { GraphState } from '../src/graph/state';
import { detailAt } from '../src/graph/paint';
import { step } from '../src/graph/walk';
import { chain, graphOf, residual, type NodeSpec } from './graph-data';

const stateOf = (nodes: readonly NodeSpec[], limit?: number): GraphState =>
  new GraphState(graphOf(nodes), limit);

describe('operations', () => {
  it('are one per Python call, with the bytes of all its nodes', () => {
    const state = stateOf([
      { op: 'linear' },
      { op: 'cross_entropy', call: 7, inputs: [0], saved: 10 },
      { op: 'cross_entropy', call: 7, inputs: [1], saved: 5 },
    ]);
    expect(state.operations.map(({ op, saved }) => [op, saved])).toEqual([
      ['linear', 0],
      ['cross_entropy', 15],
    ]);
    expect(state.root?.op).toBe('cross_entropy');
  });

  it('carry their parameters, also through a transpose or a cast', () => {
    const state = stateOf([
      { op: 'weight', kind: 'parameter', name: 'fc.weight', module: 'fc' },
      { op: 'bias', kind: 'parameter', name: 'fc.bias', module: 'fc' },
      { op: 'ToCopy', module: 'fc', inputs: [0] },
      { op: 'T', module: 'fc', inputs: [2] },
      { op: 'addmm', module: 'fc', inputs: [1, 3] },
    ]);
    expect(state.operations).toHaveLength(1);
    expect(state.operations[0]?.op).toBe('addmm');
    expect(state.operations[0]?.leaves.map(({ name }) => name).sort()).toEqual([
      'fc.bias',
      'fc.weight',
    ]);
  });

  it('compute something: a parameter in front makes none of them vanish', () => {
    const state = stateOf([
      { op: 'weight', kind: 'parameter', name: 'weight' },
      { op: 'T', inputs: [0] },
      { op: 'Mm', inputs: [1] },
      { op: 'Pow', inputs: [2] },
      { op: 'Mean', inputs: [3] },
    ]);
    expect(state.operations.map(({ op, leaves }) => [op, leaves.length])).toEqual([
      ['Mm', 1],
      ['Pow', 0],
      ['Mean', 0],
    ]);
  });

  it('fall apart into nodes where two calls would feed each other', () => {
    const state = stateOf([
      { op: 'a', call: 1 },
      { op: 'b', call: 2, inputs: [0] },
      { op: 'a', call: 1, inputs: [1] },
    ]);
    expect(state.operations).toHaveLength(3);
  });
});

it('writes a small loss with a true minus', () => {
  const state = new GraphState({ ...graphOf(chain(2)), loss: 1.12e-8 });
  expect(state.root && state.lossOf(state.root)).toBe('loss 1.12e−8');
});

describe('tree', () => {
  it('names a list of equal modules after the list, whatever the first one holds', () => {
    const nodes = residual(12).map((node) =>
      node.module === 'layers.0' ? { ...node, saved: 999 } : node,
    );
    const group = stateOf(nodes).tree.groups.find(({ kind }) => kind === 'repeat');
    expect(group && [group.title, countRepeats(group)]).toEqual(['layers 0 … 11', 12]);
  });

  it('rolls three or more equal neighbours into one box that opens', () => {
    const state = stateOf(residual(5));
    const group = state.tree.groups.find(({ kind }) => kind === 'repeat');
    expect(group && countRepeats(group)).toBe(5);
    expect(state.box(group ?? null)?.open).toBe(false);
    if (!group) return;
    state.toggle(group);
    expect(state.box(group)?.children).toHaveLength(5);
  });

  it('keeps two calls of one module apart', () => {
    const state = stateOf([
      { op: 'mul', module: 'cell' },
      { op: 'add', module: 'cell', inputs: [0] },
      { op: 'select', inputs: [1] },
      { op: 'tanh', module: 'cell', inputs: [2] },
      { op: 'add', module: 'cell', inputs: [3] },
    ]);
    expect(state.tree.root.children.map((c) => (c.kind === 'operation' ? c.op : c.title))).toEqual([
      'cell',
      'select',
      'cell (call 2)',
    ]);
  });

  it('takes no range of a list for a call of it, until one of its modules comes again', () => {
    const block = (name: string, from: number) => [
      { op: 'linear', module: `blocks.${name}`, inputs: [from] },
      { op: 'relu', module: `blocks.${name}`, inputs: [from + 1] },
    ];
    const between = { op: 'cat', inputs: [2] };
    const later = ['1', '2', '3'].flatMap((name, at) => block(name, 3 + 2 * at));
    const once = [{ op: 'stem' }, ...block('0', 0), between, ...later];
    const titles = (state: GraphState): string[] =>
      state.tree.root.children.map((child) =>
        child.kind === 'operation' ? child.op : child.title,
      );
    const named = titles(stateOf(once));
    expect(named).toEqual(['stem', 'blocks', 'cat', 'blocks 1 … 3']);
    const again = [...once, { op: 'cat', inputs: [9] }, ...block('0', 10)];
    expect(titles(stateOf(again)).slice(4)).toEqual(['cat', 'blocks (call 2)']);
  });

  it('shows a module of one operation as that operation', () => {
    const state = stateOf([{ op: 'conv2d', module: 'conv1' }]);
    expect(state.tree.root.children).toEqual([
      expect.objectContaining({ op: 'conv2d', name: 'conv1' }),
    ]);
  });

  it('cuts long lists and loses no operation', () => {
    const state = stateOf(chain(5_000));
    const longest = Math.max(...state.tree.groups.map(({ children }) => children.length));
    expect(longest).toBeLessThanOrEqual(LONGEST_LIST);
    expect(size(state.tree.root)).toBe(5_000);
  });

  it('collapses the smallest modules first until the limit is kept', () => {
    const nodes = [...chain(50, 'big'), ...chain(5, 'small')];
    const state = stateOf(nodes, 52);
    const open = (path: string): boolean | undefined =>
      state.box(state.tree.groups.find((group) => group.path === path) ?? null)?.open;
    expect(open('big')).toBe(true);
    expect(open('small')).toBe(false);
  });
});

describe('finding and walking', () => {
  it('finds by module path, call, parameter and shape, and opens what hides a match', () => {
    const state = stateOf(residual(5));
    state.search('layers.3 relu');
    expect(state.matches).toHaveLength(1);
    const [match] = state.matches;
    state.select(match ?? null);
    expect(state.layout.boxes.has(match as never)).toBe(true);
    state.search('nothing like it');
    expect(state.matches).toEqual([]);
  });

  it('follows the data with up and down and goes beside with right and left', () => {
    const state = stateOf([
      { op: 'relu' },
      { op: 'conv', inputs: [0] },
      { op: 'skip', inputs: [0] },
      { op: 'norm', inputs: [1] },
      { op: 'add', inputs: [3, 2] },
    ]);
    const named = (op: string) => state.operations.find((operation) => operation.op === op) ?? null;
    state.select(named('relu'));
    state.select(step(state, 'down'));
    expect(state.selected).toBe(named('conv'));
    state.select(step(state, 'right'));
    expect(state.selected).toBe(named('skip'));
    state.select(step(state, 'left'));
    expect(state.selected).not.toBe(named('skip'));
    state.select(named('add'));
    expect(step(state, 'up')).toBe(named('norm'));
    expect(step(state, 'down')).toBeNull();
  });

  it('draws less the farther away it is', () => {
    expect([1, 0.9, 0.7, 0.4, 0.2].map(detailAt)).toEqual(['all', 'all', 'name', 'block', 'box']);
  });
});
