import { describe, expect, it } from 'vitest';
import type { GraphColumns } from '../src/graph/columns';
import { countOps, numOps, type Group } from '../src/graph/groups';
import { isInner } from '../src/graph/operations';
import { GraphState } from '../src/graph/state';
import { graphOf, type NodeSpec } from './graph-data';
import { buttonNamed, find, press, query, sectionText, shown } from './graph-mounted';

interface InnerSpec {
  op: string;
  module: string;
  /** `takes` a gradient from outside, `gives` one to outside. */
  ends?: 'takes' | 'gives' | 'both';
  inputs?: readonly number[];
}

const NODES: readonly NodeSpec[] = [
  { op: 'stem', module: 'stem', saved: 8, gradient: 1 },
  { op: 'w', kind: 'parameter', name: 'net.up.w', module: 'net.up', gradient: 3 },
  { op: 'compiled', module: 'net', inputs: [0, 1], saved: 64, gradient: 2 },
  { op: 'mean', module: 'loss', inputs: [2], saved: 4, gradient: 1 },
];

/** In the order of the run; `recompute` works on no gradient. */
const INNER: readonly InnerSpec[] = [
  { op: 'recompute', module: 'net.up' },
  { op: 'mm', module: 'net.down', ends: 'takes', inputs: [0] },
  { op: 'sum', module: 'net.down', ends: 'both' },
  { op: 'gelu_backward', module: 'net', inputs: [1, 0] },
  { op: 'mm', module: 'net.up', inputs: [3] },
  { op: 'sum', module: 'net.up', ends: 'gives', inputs: [4] },
  { op: 't', module: 'net.up', ends: 'gives', inputs: [4] },
];

function compiled(inner = INNER, nodes = NODES): GraphColumns {
  const ends = ['', 'takes', 'gives', 'both'];
  // Nodes of the modules and names that only the inside has; taken off again below.
  const names: NodeSpec[] = inner.map(({ op, module }) => ({ op, module }));
  const whole = graphOf([...names, ...nodes.map((n) => ({ ...n, inputs: [] }))]);
  const record = graphOf(nodes);
  const rows = whole.node_module.length - nodes.length;
  const last = (column: ArrayLike<number>): number[] => Array.from(column).slice(rows);
  const links = inner.flatMap(({ inputs = [] }, to) => inputs.map((from) => [from, to] as const));
  return {
    ...record,
    strings: whole.strings,
    modules: whole.modules,
    node_type: last(whole.node_type),
    node_op: last(whole.node_op),
    node_module: last(whole.node_module),
    node_shape: last(whole.node_shape),
    node_dtype: last(whole.node_dtype),
    node_name: last(whole.node_name),
    node_kind: nodes.map(({ op, kind }) => (op === 'compiled' ? 3 : kind === 'parameter' ? 1 : 0)),
    inner_node: inner.map(() => 2),
    inner_op: Array.from(whole.node_op).slice(0, rows),
    inner_module: Array.from(whole.node_module).slice(0, rows),
    inner_shape: Array.from(whole.node_shape).slice(0, rows),
    inner_dtype: Array.from(whole.node_dtype).slice(0, rows),
    inner_source: inner.map(() => 0),
    inner_ends: inner.map(({ ends: end = '' }) => ends.indexOf(end)),
    link_from: links.map(([from]) => from),
    link_to: links.map(([, to]) => to),
  };
}

const boxOf = (state: GraphState, kind: Group['kind']): Group => {
  const found = state.tree.groups.find((group) => group.kind === kind);
  if (!found) throw new Error(kind);
  return found;
};

describe('the inside of a compiled operation', () => {
  it('is a box in its module, with the modules of the forward inside', () => {
    const state = new GraphState(compiled());
    const box = boxOf(state, 'compiled');
    expect(state.path(box).map(({ title }) => title)).toEqual(['Net', 'net']);
    expect(box.children.map((child) => ('title' in child ? child.title : child.op))).toEqual([
      'compiled',
      'up',
      'gelu_backward',
      'down',
    ]);
    expect(countOps(box)).toBe('7 backward ops');
    expect(countOps(box.parent ?? box)).toBe('1 op');
  });

  it('changes neither bytes nor the number of operations', () => {
    const state = new GraphState(compiled());
    expect(state.tree.root.saved).toBe(76);
    expect(boxOf(state, 'compiled').saved).toBe(64);
    expect(numOps(state.tree.root)).toBe(3);
    expect(state.mostSaved).toBe(64);
  });

  it('draws gradients against their run and recomputed values along it', () => {
    const state = new GraphState(compiled());
    const named = ({ op, module }: { op: string; module: number }): string =>
      `${state.record.modules[module]?.path ?? ''} ${op}`;
    const flows = state.flows.map(
      ({ from, to }) =>
        [state.operations[from], state.operations[to]].map((one) => (one ? named(one) : '')) as [
          string,
          string,
        ],
    );
    const pairs = flows.map((pair) => pair.join(' -> ')).sort();
    expect(pairs).toEqual(
      [
        'stem stem -> net compiled',
        'net compiled -> net.up recompute',
        'net compiled -> net.up sum',
        'net compiled -> net.up t',
        'net.up recompute -> net.down mm',
        'net.up recompute -> net gelu_backward',
        'net.up sum -> net.up mm',
        'net.up t -> net.up mm',
        'net.up mm -> net gelu_backward',
        'net gelu_backward -> net.down mm',
        'net compiled -> net.down sum',
        'net.down mm -> loss mean',
        'net.down sum -> loss mean',
      ].sort(),
    );
  });

  it.each(Array.from({ length: 20 }, (_, seed) => seed + 1))(
    'is in data order, whatever is inside (random graph %i)',
    (seed) => {
      const random = randomOf(seed);
      const inner = Array.from({ length: 60 }, (_, row): InnerSpec => {
        const inputs = Array.from({ length: row }, (_ignored, from) => from).filter(
          (from) => row - from < 8 && random() < 0.25,
        );
        const ends = ['takes', 'gives', 'both', undefined, undefined, undefined] as const;
        const end = ends[Math.floor(random() * ends.length)];
        const module = `net.${'abcde'[Math.floor((row / 60) * 5)] ?? ''}`;
        return { op: `op${row}`, module, inputs, ...(end ? { ends: end } : {}) };
      });
      const state = new GraphState(compiled(inner));
      expect(state.flows.every(({ from, to }) => from < to)).toBe(true);
      expect(state.operations.every(({ id }, at) => id === at)).toBe(true);
      const names = state.operations.filter(isInner).map(({ op }) => op);
      expect(new Set(names).size).toBe(60);
      expect(state.operations[state.root?.id ?? -1]?.op).toBe('mean');
    },
  );

  it('starts closed where it is large, and in it what is', () => {
    const inner = Array.from({ length: 40 }, (_, row): InnerSpec => {
      const module = `net.${row < 20 ? 'down' : 'up'}`;
      return {
        op: `op${row}`,
        module,
        inputs: row ? [row - 1] : [],
        ends: row ? 'gives' : 'takes',
      };
    });
    const state = new GraphState(compiled(inner));
    const box = boxOf(state, 'compiled');
    expect(state.open.has(box)).toBe(false);
    state.toggle(box);
    expect(state.layout.boxes.has(box)).toBe(true);
    expect(state.tree.groups.filter(({ parent }) => parent === box).length).toBe(2);
    expect(state.tree.groups.some((one) => one.parent === box && state.open.has(one))).toBe(false);
    const small = new GraphState(compiled());
    expect(small.open.has(boxOf(small, 'compiled'))).toBe(true);
  });

  it('does not say of what it cannot know that backward did not run', () => {
    const state = new GraphState(compiled());
    state.colouring = 'gradient';
    const palette = { scale: [], scaleInk: [], raise: 'white', ink: 'black', ink2: 'grey' };
    const shades = state.operations.map(
      (one) => [one, state.shade(one, palette as never)] as const,
    );
    for (const [one, shade] of shades) {
      expect(shade.hatched).toBe(false);
      expect(shade.figure === '').toBe(isInner(one));
    }
    expect(state.shade(boxOf(state, 'compiled'), palette as never).figure).toBe('2');
  });
});

describe('the page of an operation inside', () => {
  it('names its module, shape, type and line, and says what is not known', () => {
    const host = shown({ record: compiled(), error: null });
    find(host, 'gelu');
    const inspector = query(host, '.wv-inspector').textContent ?? '';
    expect(inspector).toContain('gelu_backward');
    expect(inspector).toContain('backward operation in compiled code');
    expect(inspector).toContain('a.py:3');
    expect(sectionText(host, 'Tensors')).toContain('2×2 float32');
    expect(sectionText(host, 'Tensors')).toContain('net · Block');
    expect(sectionText(host, 'Bytes and gradient')).toContain('the compiled operation has both');
    expect(inspector).not.toContain('Saved for backward');
    expect(sectionText(host, 'Data flow')).toContain('mm');
  });

  it('is reached from the search, and the next operation still counts as it did', () => {
    const host = shown({ record: compiled(), error: null });
    find(host, 'mean');
    expect(query(host, '.wv-inspector').textContent).toContain('operation 3 of 3');
    expect(sectionText(host, 'Tensors')).toContain('2×2 float32 · 16 B');
    find(host, 'net.down');
    expect(query(host, '.wv-inspector').textContent).toContain('The compiler fuses');
  });

  it('stands in the table, with nothing where nothing is known', () => {
    const host = shown({ record: compiled(), error: null });
    press(host, 't');
    const rows = [...host.querySelectorAll('[role=treegrid] tbody tr')].map((row) =>
      [...row.querySelectorAll('td')].map((cell) => cell.textContent ?? ''),
    );
    const gelu = rows.find(([name]) => name?.endsWith('gelu_backward'));
    expect(gelu?.slice(1)).toEqual([
      'gelu_backward',
      '1',
      '2×2',
      'float32',
      '',
      '',
      '',
      '',
      'a.py:3',
    ]);
    expect(buttonNamed(host, 'Table').getAttribute('aria-pressed')).toBe('true');
  });
});

/** Numbers from 0 to 1 that are the same in every run. */
function randomOf(seed: number): () => number {
  let state = seed * 2654435761;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
