/** Tests that Python made of tensors: their boxes, lines, order and words. */
import type { Branch } from '@torch-workbench/records';
import { describe, expect, it } from 'vitest';
import { outcome } from '../src/graph/branches';
import { nextName } from '../src/graph/branch-paint';
import { numOps, type Item } from '../src/graph/groups';
import { histogram } from '../src/graph/histogram';
import type { Box } from '../src/graph/layout';
import { GraphState } from '../src/graph/state';
import { describe as say } from '../src/graph/status';
import { graphOf, type NodeSpec } from './graph-data';
import { find, press, query, sectionText, shown } from './graph-mounted';

/** An early exit: its head reads what the body reads too. */
const NODES: readonly NodeSpec[] = [
  { op: 'stem' },
  { op: 'mean', module: 'exit', inputs: [0] },
  { op: 'linear', module: 'exit', inputs: [1], gradient: 0.1 },
  { op: 'conv', module: 'body', inputs: [0] },
  { op: 'relu', module: 'body', inputs: [3] },
  { op: 'add', inputs: [2, 4] },
  { op: 'sum', module: 'loss', inputs: [5] },
];

function graphWithTests(branches: readonly Partial<Branch>[], nodes = NODES) {
  const record = graphOf(nodes);
  record.sources = [
    ...record.sources,
    { filename: 'a.py', line: 9, cell: null, function: 'forward', text: 'if sure > limit:' },
    { filename: 'a.py', line: 12, cell: 4, function: 'forward', text: 'while x > 3:' },
  ];
  const plain = {
    values: '0.730 > 0.750',
    taken: false,
    module: 0,
    source: 1,
    before: 2,
    after: 3,
  };
  record.branches = branches.map((one) => ({ condition: 'sure > limit', ...plain, ...one }));
  return record;
}

const stateOf = (...given: Parameters<typeof graphWithTests>): GraphState =>
  new GraphState(graphWithTests(...given));
const testsOf = (state: GraphState) => state.operations.filter(({ test: asked }) => asked);

describe('a test that Python made', () => {
  it('stands between what it tested and what was made next, and is no operation', () => {
    const state = stateOf([{}]);
    expect(state.operations.map(({ op }) => op)).toEqual(
      'stem mean linear,if sure > limit,conv relu add sum'
        .split(',')
        .flatMap((part) => (part.startsWith('if') ? [part] : part.split(' '))),
    );
    expect(numOps(state.tree.root)).toBe(NODES.length);
    expect(state.root?.op).toBe('sum');
    expect(state.flows.every(({ from, to }) => !isAsked(state, from) && !isAsked(state, to))).toBe(
      true,
    );
    const [test] = testsOf(state);
    const { before, after } = state.neighbours(test as Item);
    expect([...before, ...after].map((one) => (one.kind === 'operation' ? one.op : ''))).toEqual([
      'linear',
      'conv',
    ]);
    expect(test && nextName(state, test)).toBe('body');
  });

  it('leaves the trunk alone, and overlaps nothing', () => {
    const [plain, asked] = [stateOf([]), stateOf([{}])];
    const axis = (state: GraphState, op: string): number | undefined =>
      state.box(state.operations.find((one) => one.op === op) ?? null)?.axis;
    for (const op of ['stem', 'mean', 'linear', 'add'])
      expect(axis(asked, op)).toBe(axis(plain, op));
    overlapsNothing(asked.layout.root);
  });

  it('hangs several at one place below each other, and counts equal ones', () => {
    const loop = { condition: 'x > 3', source: 2, taken: true };
    const state = stateOf([{}, loop, loop, { ...loop, taken: false }]);
    const tests = testsOf(state);
    expect(tests.map(({ op, test: asked }) => [op, asked && outcome(asked)])).toEqual([
      ['if sure > limit', '0.730 > 0.750 is False'],
      ['while x > 3', '0.730 > 0.750 is True × 2'],
      ['while x > 3', '0.730 > 0.750 is False'],
    ]);
    const tops = tests.map((test) => state.box(test)?.y ?? 0);
    expect([...tops].sort((a, b) => a - b)).toEqual(tops);
    expect(new Set(tops).size).toBe(3);
    overlapsNothing(state.layout.root);
  });

  it('is drawn wherever its ends are: closed, unknown, out of order', () => {
    const odd = [
      { before: -1 },
      { after: -1 },
      { before: -1, after: -1 },
      { before: 4, after: 1 },
      { module: -1, source: -1, condition: '' },
      { before: 1, after: 2, module: 1 },
      { before: 3, after: 4, module: 0 },
    ];
    const state = stateOf(odd);
    expect(testsOf(state)).toHaveLength(odd.length);
    expect(state.tree.groups.filter(({ title }) => title.includes('call'))).toEqual([]);
    overlapsNothing(state.layout.root);
    for (const group of state.tree.groups) {
      state.toggle(group);
      overlapsNothing(state.layout.root);
    }
  });

  it('is said without bytes and gradients, which it has none of', () => {
    const state = stateOf([{ taken: true }]);
    const [test] = testsOf(state);
    for (const colouring of ['bytes', 'gradient'] as const) {
      state.colouring = colouring;
      expect(test && say(state, test)).toBe('if sure > limit is 0.730 > 0.750 is True');
    }
  });

  it('is found, reached by keyboard, and explained', () => {
    const view = shown({ record: graphWithTests([{ taken: true }]), error: null });
    find(view, 'sure');
    expect(view.querySelector('h2')?.textContent).toBe('if sure > limit');
    expect(sectionText(view, 'Test')).toContain('0.730 > 0.750');
    expect(sectionText(view, 'Around it')).toContain('linear');
    press(view, 'ArrowUp');
    expect(query(view, 'h2').textContent).toBe('linear');
    press(view, 'ArrowDown');
    press(view, 't');
    expect(query(view, '.wv-table').textContent).toContain('0.730 > 0.750 is True');
  });
});

describe('the histogram of a gradient', () => {
  it('has a bar for each power of ten between the first and the last', () => {
    const record = graphOf(NODES);
    record.bin_node = [1, 2, 2, 4];
    record.bin_power = [0, -5, -3, 2];
    record.bin_share = [1, 0.25, 0.5, 1];
    const bars = [...(histogram(record, 2)?.querySelectorAll<HTMLElement>('.bars i') ?? [])];
    expect(bars.map(({ style, title }) => [style.height, title])).toEqual([
      ['max(1px,50.0%)', '1e−5 to 1e−4: 25.0 %'],
      ['0px', '1e−4 to 1e−3: 0.0 %'],
      ['max(1px,100.0%)', '1e−3 to 1e−2: 50.0 %'],
    ]);
    expect(histogram(record, 2)?.getAttribute('aria-label')).toContain('1e−5 to 1e−4: 25.0 %');
    expect(histogram(record, 3)).toBeNull();
  });
});

function isAsked({ operations }: GraphState, id: number): boolean {
  return operations[id]?.test !== undefined;
}

/** Boxes of one parent are apart, and none leaves its parent. */
function overlapsNothing(box: Box): void {
  box.children.forEach((one, index) => {
    for (const other of box.children.slice(index + 1)) {
      const apart =
        one.x + one.width <= other.x ||
        other.x + other.width <= one.x ||
        one.y + one.height <= other.y ||
        other.y + other.height <= one.y;
      expect(apart).toBe(true);
    }
    overlapsNothing(one);
  });
}
