import { describe, expect, it } from 'vitest';
import { scaleTicks, shadeOf } from '../src/graph/colour';
import { normRange, outputGradient, parameterNorm } from '../src/graph/gradients';
import { GraphState } from '../src/graph/state';
import type { Palette } from '../src/graph/theme';
import { graphOf, type NodeSpec, type RecordSpec } from './graph-data';
import { buttonNamed, find, press, query, sectionText, shown } from './graph-mounted';

const steps = Array.from({ length: 9 }, (_, step) => `s${step}`);
const palette = { raise: 'plain', ink: 'ink', ink2: 'ink2', scale: steps, scaleInk: steps };

const NODES: readonly NodeSpec[] = [
  { op: 'w', kind: 'parameter', name: 'body.w', module: 'body', gradient: 3 },
  { op: 'b', kind: 'parameter', name: 'body.b', module: 'body', gradient: 4 },
  { op: 'linear', module: 'body', inputs: [0, 1], gradient: 0.001 },
  { op: 'relu', module: 'body', inputs: [2], gradient: 0 },
  { op: 'side', inputs: [2] },
  { op: 'sqrt', inputs: [3], gradient: NaN, nonFinite: 12 },
  { op: 'mul', inputs: [5, 4], gradient: 0.1 },
  { op: 'mean', inputs: [6], gradient: 1 },
];

function stateOf(nodes: readonly NodeSpec[], spec: RecordSpec = {}): GraphState {
  const state = new GraphState(graphOf(nodes, spec));
  state.colouring = 'gradient';
  return state;
}

const shade = (state: GraphState, op: string) => {
  const item = state.operations.find((operation) => operation.op === op);
  if (!item) throw new Error(op);
  return shadeOf(item, state, palette as unknown as Palette);
};

describe('colour by gradient norm', () => {
  it('runs over the logarithm, without the loss whose gradient is always 1', () => {
    const state = stateOf(NODES);
    expect(normRange(state.operations)).toEqual([-3, -1]);
    expect(shade(state, 'linear')).toMatchObject({ fill: 's0', figure: '0.001' });
    expect(shade(state, 'mul')).toMatchObject({ fill: 's8', figure: '0.1' });
    expect(shade(state, 'mean').fill).toBe('s8');
    expect(scaleTicks(state)).toEqual(['0.001', '0.00464', '0.0215', '0.1']);
  });

  it('says zero as 0, hatches what did not run, and counts what is not finite', () => {
    const state = stateOf(NODES);
    expect(shade(state, 'relu')).toMatchObject({ fill: 'plain', figure: '0', hatched: false });
    expect(shade(state, 'side')).toMatchObject({ figure: '', hatched: true });
    expect(shade(state, 'sqrt')).toMatchObject({ figure: '⚠ 12', bad: true });
  });

  it('has one tick where all norms are equal', () => {
    const state = stateOf([
      { op: 'a', gradient: 0.5 },
      { op: 'b', inputs: [0], gradient: 1 },
    ]);
    expect(scaleTicks(state)).toEqual(['0.5']);
    const near = stateOf([
      { op: 'a', gradient: 0.5 },
      { op: 'b', inputs: [0], gradient: 0.5001 },
      { op: 'c', inputs: [1], gradient: 1 },
    ]);
    expect(scaleTicks(near)).toEqual(['0.5']);
    // no scale is made of rounding: both get the colour of its middle
    expect([shade(near, 'a').fill, shade(near, 'b').fill]).toEqual(['s4', 's4']);
  });

  it('gives a module the gradient of its output, and the norm over its parameters', () => {
    const state = stateOf(NODES);
    const body = state.tree.groups.find(({ path }) => path === 'body');
    expect(body && outputGradient(body, state.operations)?.norm).toBe(0);
    expect(body && parameterNorm(body, state.operations)).toBe(5);
  });

  it('sums over every parameter, also where none has a name', () => {
    const unnamed = NODES.map((node) => ({ ...node, name: '' }));
    const state = stateOf(unnamed);
    const body = state.tree.groups.find(({ path }) => path === 'body');
    expect(body && parameterNorm(body, state.operations)).toBe(5);
  });

  it('cannot be chosen where backward was not watched, and says why', () => {
    const host = shown({ record: graphOf([{ op: 'a' }, { op: 'b', inputs: [0] }]), error: null });
    const choice = buttonNamed(host, 'Gradient norm');
    expect(choice.getAttribute('aria-disabled')).toBe('true');
    expect(choice.title).toContain('Backward was not watched');
    choice.click();
    expect(query(host, '.wv-legend').textContent).toContain('Bytes saved');
    find(host, 'a');
    expect(sectionText(host, 'Gradient of the output')).toContain('Backward was not watched');
  });

  it('shows its legend, the statistics of a node and the norms of its parameters', () => {
    const host = shown({ record: graphOf(NODES), error: null });
    buttonNamed(host, 'Gradient norm').click();
    expect(query(host, '.wv-legend').textContent).toContain('Norm of the gradient');
    // The loss is left out of the scale and coloured as its end, whose figure says so.
    expect(query(host, '.wv-legend .ticks').textContent).toContain('≥ 0.1');
    find(host, 'linear');
    const text = sectionText(host, 'Gradient of the output');
    for (const part of ['Norm0.001', 'Zeros25.0 %', 'Non-finite0']) expect(text).toContain(part);
    expect(sectionText(host, 'Parameters')).toContain('w2×216 B3');
    expect(query(host, '.wv-sr').textContent).toContain('gradient norm 0.001');
    press(host, 't');
    expect(query(host, '.wv-table').textContent).toContain('did not run');
    const heads = [...host.querySelectorAll<HTMLElement>('.wv-table th')];
    const gradient = heads.find(({ textContent }) => textContent === 'Output gradient');
    expect(gradient?.title).toContain('of the gradient of the output');
  });

  it('stays chosen for the next capture', () => {
    let record = graphOf(NODES);
    let changed = (): void => {};
    const host = shown({
      get record() {
        return record;
      },
      error: null,
      subscribe: (listener) => (changed = listener),
    });
    buttonNamed(host, 'Gradient norm').click();
    record = graphOf(NODES);
    changed();
    expect(buttonNamed(host, 'Gradient norm').getAttribute('aria-pressed')).toBe('true');
  });
});

describe('colour by time', () => {
  const seconds = { '': 0.03, body: 0.02, 'body.fc': 0.005 };
  const nodes: readonly NodeSpec[] = [
    { op: 'linear', module: 'body.fc' },
    { op: 'relu', module: 'body', inputs: [0] },
    { op: 'mean', module: 'loss', inputs: [1] },
  ];

  it('fills modules and the operations that make one up by themselves', () => {
    const state = stateOf(nodes, { seconds });
    state.colouring = 'time';
    expect(shade(state, 'linear')).toMatchObject({ fill: 's4', figure: '5.0 ms' });
    expect(shade(state, 'relu')).toMatchObject({ fill: 'plain', figure: '' });
    const body = state.tree.groups.find(({ path }) => path === 'body');
    expect(body && shadeOf(body, state, palette as unknown as Palette).figure).toBe('20.0 ms');
    expect(scaleTicks(state)[0]).toBe('0');
  });

  it('cannot be chosen where forward was not watched', () => {
    const state = stateOf(nodes);
    expect(state.missing('time')).toContain('Modules were not timed');
    expect(stateOf(nodes, { seconds }).missing('time')).toBe('');
  });
});

describe('the first value that is not finite', () => {
  const nonFinite = { node: 5, in_forward: false, samples: [3, 17], text: 'sqrt made 12 of them.' };

  it('stands above the drawing and leads to the node, and to the samples', () => {
    const host = shown({ record: graphOf(NODES, { nonFinite }), error: null });
    const banner = query<HTMLElement>(host, '.wv-banner');
    expect(banner.hidden).toBe(false);
    expect(banner.textContent).toContain('sqrt made 12 of them.');
    press(host, 'n');
    expect(query(host, '.wv-inspector h2').textContent).toBe('sqrt');
    press(host, 'Escape');
    expect(sectionText(host, 'First value that is not finite')).toContain(
      'Samples of the batch: 3, 17.',
    );
    buttonNamed(banner, 'Show the node').click();
    expect(query(host, '.wv-inspector h2').textContent).toBe('sqrt');
  });

  it('is not mentioned where all values are finite', () => {
    const host = shown({ record: graphOf(NODES), error: null });
    expect(query<HTMLElement>(host, '.wv-banner').hidden).toBe(true);
    expect(press(host, 'n').defaultPrevented).toBe(false);
  });
});
