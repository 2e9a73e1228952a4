import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FlowFoot, FlowPieces, type FlowColumns } from '../src/flow';
import { rowsOfModules, stepColours } from '../src/flow/over-graph';
import { mount, type GraphViewState } from '../src/graph';
import { scaleTicks, shadeOf } from '../src/graph/colour';
import { GraphState } from '../src/graph/state';
import type { Palette } from '../src/graph/theme';
import { flowOf } from './flow-data';
import { chain, graphOf, type NodeSpec } from './graph-data';
import { buttonNamed, find, query, sectionText } from './graph-mounted';

const steps = Array.from({ length: 9 }, (_, step) => `s${step}`);
const palette = { raise: 'plain', scale: steps, scaleInk: steps } as unknown as Palette;
const [NONE, ABSENT, BAD] = [NaN, -1, Infinity];

const NODES: readonly NodeSpec[] = [
  { op: 'conv2d', module: 'body.conv' },
  { op: 'relu', module: 'body', inputs: [0] },
  { op: 'linear', module: 'head', inputs: [1] },
  { op: 'tanh', module: 'head', inputs: [2] },
  { op: 'view', inputs: [3] },
  { op: 'cross_entropy', module: 'loss', inputs: [4] },
];
const FLOW = flowOf({ body: [1, 100, NONE, BAD], head: [0.01, 0, 1, 1], gone: [2, ABSENT, 2, 2] });

function row(path: string, label = path, count = 1, cls = ''): FlowColumns['rows'][number] {
  return { path, label, cls, num_modules: count, num_parameters: 1 };
}

function modules(...paths: string[]): GraphState['record']['modules'] {
  return graphOf(paths.flatMap((module) => chain(1, module))).modules;
}

describe('rows and modules', () => {
  const placed = (paths: string[], rows: FlowColumns['rows']): Record<string, number> => {
    const found = modules(...paths);
    const at = rowsOfModules(found, rows);
    return Object.fromEntries(found.map(({ path }, index) => [path, at[index] ?? -1]));
  };

  it('go by the nearest module around, the loss by none', () => {
    const rows = [row('stem'), row('body.0'), row('body')];
    expect(placed(['stem.conv.deep', 'body.0.x', 'loss'], rows)).toMatchObject({
      'stem.conv.deep': 0,
      stem: 0,
      'body.0.x': 1,
      '': -1,
      loss: -1,
    });
  });

  it('take a range from its first to its last, whichever of them ran', () => {
    const rows = [row('layer.0', 'layer.0–3', 4), row('layer.4', 'layer.4–10', 7)];
    const found = placed(['layer.1.a', 'layer.3', 'layer.4', 'layer.10.b', 'layer.11'], rows);
    expect(found).toMatchObject({ 'layer.1.a': 0, 'layer.3': 0, 'layer.4': 1, 'layer.10.b': 1 });
    expect(found).toMatchObject({ 'layer.11': -1, layer: -1 });
    const bare = [row('1', '1–2', 2), row('3', '3–4 Block', 2, 'Block')];
    expect(placed(['1', '2', '3', '4'], bare)).toMatchObject({ 1: 0, 2: 0, 3: 1, 4: 1 });
    const named = [row('down', 'down–up', 3)];
    expect(placed(['down', 'mid.x', 'up', 'out'], named)).toMatchObject({
      'mid.x': 0,
      up: 0,
      out: -1,
    });
  });

  it('leave parameters of a module itself to the operations of that module alone', () => {
    const rows = [row('', 'cls_token, position'), row('blocks.0'), row('head')];
    expect(placed(['blocks.0', 'act', 'head'], rows)).toMatchObject({ '': 0, act: -1, head: 2 });
    const all = [row('', 'Linear')];
    expect(placed(['inner', 'loss'], all)).toMatchObject({ '': 0, inner: 0, loss: -1 });
  });
});

describe('the colours of a step', () => {
  const state = new GraphState(graphOf(NODES));
  const at = (column: number) => {
    state.colours = stepColours(FLOW, column);
    return (name: string) => {
      const item =
        state.operations.find(({ op }) => op === name) ??
        state.tree.groups.find(({ title }) => title === name);
      if (!item) throw new Error(name);
      return shadeOf(item, state, palette);
    };
  };

  it('run over the scale of all steps; a figure stands at the outermost box', () => {
    const first = at(0);
    expect(first('body')).toMatchObject({ fill: 's4', figure: '1' });
    expect(first('conv2d')).toMatchObject({ fill: 's4', figure: '' });
    expect(first('tanh')).toMatchObject({ fill: 's0', figure: '' });
    expect(first('view')).toMatchObject({ fill: 'plain', figure: '', hatched: false });
    expect(first('cross_entropy')).toMatchObject({ fill: 'plain', hatched: false });
    expect(scaleTicks(state)).toEqual(['0.01', '0.215', '4.64', '100']);
    expect(state.fullBar).toBe(0);
  });

  it('hatch what did not run, and distinguish zero from not finite', () => {
    expect(at(2)('relu')).toMatchObject({ hatched: true, bad: false });
    expect(at(2)('body').figure).toBe('did not run');
    expect(at(1)('head')).toMatchObject({ fill: 'plain', figure: '0' });
    expect(at(3)('body')).toMatchObject({ bad: true, hatched: false, figure: '⚠ not finite' });
  });

  it('add up over the rows in a box, those that ran', () => {
    const { root } = state.tree;
    const whole = (column: number) => stepColours(FLOW, column).normOf(root, state);
    expect(whole(0)?.norm).toBeCloseTo(Math.hypot(1, 0.01));
    expect(whole(2)).toEqual({ norm: 1, name: '2 modules together' });
    expect(whole(3)?.norm).toBe(Infinity);
    expect(stepColours(flowOf({ other: [1] }), 0).normOf(root, state)).toBeNull();
  });
});

describe('pieces of a flow', () => {
  const columns = ({ step, norm }: FlowColumns) => [Array.from(step), Array.from(norm)];

  it('are put behind each other', () => {
    const pieces = new FlowPieces();
    expect(pieces.known).toBe(0);
    expect(pieces.add(flowOf({ a: [1, 2], b: [3, 4] }), 0)).toBe(true);
    const more = { ...flowOf({ a: [5], b: [6] }, [3]), total_sampled: 3 };
    expect(pieces.add(more, 2)).toBe(true);
    expect(pieces.known).toBe(3);
    expect(columns(pieces.record as FlowColumns)).toEqual([
      [1, 2, 3],
      [1, 2, 5, 3, 4, 6],
    ]);
  });

  it('of other rows, or with a gap, make it request everything', () => {
    const pieces = new FlowPieces();
    pieces.add(flowOf({ a: [1, 2] }), 0);
    expect(pieces.add(flowOf({ other: [1] }), 2)).toBe(false);
    expect(pieces.known).toBe(0);
    pieces.add(flowOf({ a: [1, 2] }), 0);
    expect(pieces.add(flowOf({ a: [9] }), 7)).toBe(false);
  });
});

describe('the strip below a graph', () => {
  const host = document.createElement('div');
  let state: GraphViewState;
  let foot: FlowFoot;
  let unmount: () => void;
  const listeners = new Set<() => void>();
  const went: number[] = [];

  beforeEach(() => {
    vi.useFakeTimers();
    state = { record: { ...graphOf(NODES), step: 2 }, error: null };
    document.body.append(host);
    foot = new FlowFoot(host, {
      open: true,
      onToggle: () => undefined,
      goTo: (step) => step === 4 && went.push(step) > 0,
      colour: (colours) => {
        state = { ...state, colours };
        for (const listener of listeners) listener();
      },
    });
    const subscribe = (listener: () => void): (() => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    };
    const store = { get: () => state, subscribe, send: () => Promise.resolve() };
    unmount = mount(host, store, { slots: { foot: foot.element } });
    foot.update({ record: FLOW, captured: [2, 4], current: 2 });
  });
  afterEach(() => {
    unmount();
    foot.dispose();
    went.length = listeners.size;
    vi.useRealTimers();
    document.body.replaceChildren();
  });

  const strip = (): HTMLElement => query(host, '.wv-flow canvas');
  const press = (key: string, on: HTMLElement = strip()): void => {
    on.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    vi.advanceTimersByTime(20);
  };
  const banner = (): string => query<HTMLElement>(host, '.wv-step').textContent ?? '';
  const legend = (): string => query<HTMLElement>(host, '.wv-legend').textContent ?? '';
  const isOver = (): boolean => !query<HTMLElement>(host, '.wv-step').hidden;

  it('has no scale where nothing was measured, and none where no norm is on one', () => {
    foot.update({ record: flowOf({ body: [NaN], head: [NaN] }) });
    press('Home');
    expect(legend()).toContain('No gradient was measured at this step.');
    foot.update({ record: flowOf({ body: [0], head: [0] }) });
    press('ArrowRight');
    press('Home');
    vi.advanceTimersByTime(20);
    expect(legend()).not.toContain('alike');
  });

  it('colours the graph by the step under the cursor, and says what is not of that step', () => {
    expect(isOver()).toBe(false);
    press('Home');
    expect(isOver()).toBe(true);
    expect(banner()).toContain('Gradient norm per module at step 1. Shapes and bytes: captured');
    expect(legend()).toContain('Gradient norm at step 1 (log)');
    expect(sectionText(host, 'Gradient of the parameters')).toContain('step 1');
    expect(strip().getAttribute('aria-valuenow')).toBe('1');
    expect(strip().getAttribute('aria-valuetext')).toBe('body, step 1: 1');
    press('ArrowRight');
    press('ArrowRight');
    find(host, 'relu');
    expect(sectionText(host, 'Gradient of the parameters')).toContain('did not run');
    expect(went).toEqual([]);
  });

  it('is left by Escape, by the button and by another colouring', () => {
    for (const leave of [
      () => press('Escape'),
      () => press('Escape', query<HTMLElement>(host, 'canvas.wv-surface')),
      () => buttonNamed(host, 'Back to captured step 2').click(),
      () => buttonNamed(host, 'Dtype').click(),
    ]) {
      press('Home');
      expect(isOver()).toBe(true);
      leave();
      vi.advanceTimersByTime(20);
      expect(isOver()).toBe(false);
      expect(legend()).not.toContain('at step');
    }
    expect(buttonNamed(host, 'Dtype').getAttribute('aria-pressed')).toBe('true');
  });

  it('goes to a capture of the chosen step, but not while passing over it', () => {
    press('End');
    expect(isOver()).toBe(true);
    expect(went).toEqual([]);
    press('Enter');
    expect(went).toEqual([4]);
    expect(isOver()).toBe(false);
    press('Home');
    foot.update({ current: 4 });
    vi.advanceTimersByTime(20);
    expect(isOver()).toBe(false);
  });

  it('keeps the chosen step while the training goes on', () => {
    press('Home');
    const more = flowOf({ body: [1, 2, 3, 4, 5], head: [1, 1, 1, 1, 1e4], gone: [2, 2, 2, 2, 2] });
    foot.update({ record: more });
    vi.advanceTimersByTime(20);
    expect(banner()).toContain('at step 1.');
    expect(legend()).toContain('10000');
  });

  it('takes its letters for itself, and leaves the others to the graph', () => {
    press('Home');
    press('t');
    expect(host.querySelector('.wv-norms')).not.toBeNull();
    press('t');
    press('/');
    expect(document.activeElement).toBe(query(host, 'input[type=search]'));
  });

  it('opens and closes by its title', () => {
    const title = buttonNamed(query<HTMLElement>(host, '.wv-flow'), 'Gradient flow');
    expect(title.getAttribute('aria-expanded')).toBe('true');
    title.click();
    expect(title.getAttribute('aria-expanded')).toBe('false');
    expect(query<HTMLElement>(host, '.wv-flow-body').hidden).toBe(true);
  });
});
