import { describe, expect, it } from 'vitest';
import { checkpointCall } from '../src/graph/checkpoint';
import { parametersOf, pathToParameters } from '../src/graph/highlight';
import { GraphState } from '../src/graph/state';
import { UnreachedIndex } from '../src/graph/unreached';
import { graphOf, type NodeSpec, type RecordSpec } from './graph-data';
import { buttonNamed, find, press, query, sectionText, shown } from './graph-mounted';
import { growth, NEAR_LINEAR } from './growth';

/** A stem, a block whose first operation saves the stem's output, and a head beside a side branch. */
const NODES: readonly NodeSpec[] = [
  { op: 'w', kind: 'parameter', name: 'stem.w', module: 'stem' },
  { op: 'stem', module: 'stem', inputs: [0] },
  { op: 'v', kind: 'parameter', name: 'block.v', module: 'block' },
  { op: 'conv', module: 'block', inputs: [1, 2], holds: ['x', 'v'], saved: 64 },
  { op: 'norm', module: 'block', inputs: [3], holds: ['y', 'mean'], saved: 264 },
  { op: 'relu', module: 'block', inputs: [4], holds: ['z'], saved: 64 },
  { op: 'noise', module: 'side' },
  { op: 'scale', module: 'side', inputs: [6], holds: ['y'] },
  { op: 'linear', module: 'head', inputs: [5], holds: ['z'] },
  { op: 'add', module: 'head', inputs: [8, 7] },
];
const SPEC: RecordSpec = {
  storages: { x: 64, v: [32, 'parameter'], y: 256, mean: 8, z: 64 },
  seconds: { block: 0.01 },
};

const stateOf = (nodes = NODES, spec = SPEC): GraphState => new GraphState(graphOf(nodes, spec));
const named = (state: GraphState, op: string) => {
  const found = state.operations.find((operation) => operation.op === op);
  if (!found) throw new Error(op);
  return found;
};
const moduleOf = (state: GraphState, path: string) => {
  const found = state.tree.groups.find((group) => group.path === path);
  if (!found) throw new Error(path);
  return found;
};

describe('the path to parameters', () => {
  it('goes back through what was used, and leaves out what leads to no parameter', () => {
    const state = stateOf();
    const path = pathToParameters(named(state, 'add'), state.operations, state.flows);
    const ops = [...path.lit].map((id) => state.operations[id]?.op).sort();
    expect(ops).toEqual(['add', 'conv', 'linear', 'norm', 'relu', 'stem']);
    expect(parametersOf(path, state.operations)).toEqual(['stem.w', 'block.v']);
    expect(path.has(moduleOf(state, 'block'))).toBe(true);
    expect(path.has(moduleOf(state, 'side'))).toBe(false);
  });

  it('counts parameters without a name one by one, and inputs not at all', () => {
    const unnamed = NODES.map((node) => ({ ...node, name: '' }));
    const input: NodeSpec = { op: 'x', kind: 'input', name: 'x', module: 'stem' };
    const nodes = [...unnamed, input, { op: 'last', inputs: [9, 10] }];
    const host = shown({ record: graphOf(nodes, SPEC), error: null });
    expect(query(host, '.wv-foot').textContent).toContain(' 2 parameters,');
    find(host, 'relu');
    press(host, 'p');
    expect(query(host, '.wv-questions').textContent).toContain('Feeds 2 parameters');
    expect(query(host, '.wv-questions ul').textContent).toBe('parameterparameter');
  });

  it('lights the edges between boxes that are closed', () => {
    const state = stateOf();
    state.light('path', named(state, 'relu'));
    state.toggle(moduleOf(state, 'block'));
    const lit = state.highlight?.edges(state.layout, state.tree, state.open, state.flows);
    const edges = state.layout.edges.filter(({ id }) => lit?.has(id));
    expect(edges.map(({ to }) => to)).toEqual([moduleOf(state, 'block')]);
  });

  it('is requested with P, answers in the inspector, and goes with Escape', () => {
    const host = shown({ record: graphOf(NODES, SPEC), error: null });
    expect(press(host, 'p').defaultPrevented).toBe(false);
    find(host, 'relu');
    press(host, 'p');
    expect(query(host, '.wv-questions').textContent).toContain('Feeds 2 parameters through 4');
    expect(query(host, '.wv-lit').textContent).toContain('from relu in block to 2 parameters');
    expect(buttonNamed(host, 'Path to parameters').getAttribute('aria-pressed')).toBe('true');
    press(host, 'Escape');
    expect(query<HTMLElement>(host, '.wv-lit').hidden).toBe(true);
    expect(query(host, '.wv-inspector h2').textContent).toBe('relu');
  });
});

describe('what holds these bytes', () => {
  it('distinguishes what is held here alone, elsewhere too, and anyway', () => {
    const state = stateOf();
    const { others, ...norm } = state.storages.holding(named(state, 'norm'));
    expect(norm).toEqual({ alone: 8, shared: 256, anyway: 0 });
    expect(others.map(({ operation, bytes }) => [operation.op, bytes])).toEqual([['scale', 256]]);
    expect(state.storages.holding(named(state, 'conv'))).toMatchObject({ alone: 64, anyway: 32 });
    const block = state.storages.holding(moduleOf(state, 'block'));
    expect(block).toMatchObject({ alone: 72, shared: 320, anyway: 32 });
  });

  it('is requested with H and says what releasing it would free', () => {
    const host = shown({ record: graphOf(NODES, SPEC), error: null });
    find(host, 'norm');
    expect(sectionText(host, 'Saved for backward')).toContain('y2×2here, scale256 B');
    press(host, 'h');
    const text = query(host, '.wv-questions').textContent ?? '';
    expect(text).toContain('Releasing what this operation holds would free 8 B, held by it alone.');
    expect(text).toContain('256 B are held elsewhere too');
    expect(query(host, '.wv-lit').textContent).toContain(
      '2 operations hold what norm in block holds',
    );
    find(host, 'relu');
    press(host, 'h');
    expect(query(host, '.wv-questions').textContent).toContain(
      'Releasing what this operation holds would free nothing.',
    );
  });

  it('says so where nothing is held', () => {
    const host = shown({ record: graphOf(NODES, SPEC), error: null });
    find(host, 'stem');
    press(host, 'h');
    expect(query(host, '.wv-lit').textContent).toContain('stem holds nothing for backward');
  });

  it('lists every saved tensor with its holder, parameters by their kind', () => {
    const host = shown({ record: graphOf(NODES, SPEC), error: null });
    find(host, 'conv');
    const text = sectionText(host, 'Saved for backward');
    expect(text).toContain('x2×2here only64 B');
    expect(text).toContain('v2×2parameter32 B');
  });
});

describe('checkpointing a module', () => {
  it('frees what only the module holds, without the input that a checkpoint keeps', () => {
    const state = stateOf();
    expect(state.checkpoint(moduleOf(state, 'block'))).toEqual({
      modules: 1,
      freed: 56,
      inputs: 16,
      seconds: 0.01,
      path: 'block',
    });
    expect(state.checkpoint(moduleOf(state, 'side'))).toBeNull();
  });

  it('is worded as an estimate with its basis', () => {
    const host = shown({ record: graphOf(NODES, SPEC), error: null });
    find(host, 'Block');
    const text = sectionText(host, 'Checkpoint');
    for (const part of ['estimate', 'frees about 56 B for about +10.0 ms', '16 B of inputs'])
      expect(text).toContain(part);
  });

  it('writes the call as it stands in the forward around it', () => {
    expect(checkpointCall('block2', 1)).toEqual({
      code: 'x = checkpoint(self.block2, x, use_reentrant=False)',
      where: 'the model',
      mode: 'checkpoint:block2',
    });
    expect(checkpointCall('bert.encoder.layer.0', 1)).toEqual({
      code: 'x = checkpoint(self.layer[0], x, use_reentrant=False)',
      where: 'bert.encoder',
      mode: 'checkpoint:bert.encoder.layer.0',
    });
    expect(checkpointCall('bert.encoder.layer.0', 12)).toEqual({
      code: 'for layer in self.layer:\n    x = checkpoint(layer, x, use_reentrant=False)',
      where: 'bert.encoder',
      mode: 'checkpoint:bert.encoder.layer',
    });
  });

  it('sums over the members of a rolled-up box', () => {
    const nodes: NodeSpec[] = [{ op: 'stem' }];
    const storages: Record<string, number> = {};
    for (let layer = 0; layer < 4; layer += 1) {
      const module = `layers.${layer}`;
      storages[`a${layer}`] = 100;
      nodes.push({ op: 'conv', module, inputs: [nodes.length - 1] });
      nodes.push({ op: 'relu', module, inputs: [nodes.length - 1], holds: [`a${layer}`] });
    }
    const state = stateOf(nodes, { storages });
    const group = state.tree.groups.find(({ kind }) => kind === 'repeat');
    expect(group && state.checkpoint(group)).toMatchObject({
      modules: 4,
      freed: 336,
      seconds: null,
    });
  });
});

describe('why no gradient', () => {
  const unreached = [
    { name: 'stem.frozen', reason: 'frozen', text: 'It is frozen.', source: -1 },
    { name: 'block.cut', reason: 'detached', text: 'Cut at `detach`.', source: 0 },
    { name: 'rotation.fc.weight', reason: 'unused', text: 'Its module did not run.', source: -1 },
  ] as const;
  const record = graphOf(NODES, { ...SPEC, unreached });

  it('finds the modules of parameters among many without looking through all for each', () => {
    const { groups, root } = stateOf().tree;
    const block = groups.find(({ path }) => path === 'block');
    if (!block) throw new Error('block');
    const find = (modules: number): (() => void) => {
      const many = [root, block];
      for (let at = 0; at < modules; at += 1) many.push({ ...block, path: `layers.${at}.block` });
      return () => {
        const index = new UnreachedIndex([]);
        let found = 0;
        for (let at = 0; at < modules; at += 1) {
          const owner = index.moduleOf(`layers.${at}.block.norm.weight`, many, root);
          if (owner === many[at + 2]) found += 1;
        }
        expect(found).toBe(modules);
        expect(index.moduleOf('elsewhere.weight', many, root)).toBe(root);
      };
    };
    expect(growth(800, find)).toBeLessThan(NEAR_LINEAR);
  });

  it('lists every parameter by reason for the capture, and its own for a module', () => {
    const host = shown({ record, error: null });
    const text = sectionText(host, 'Why no gradient?');
    for (const part of ['3 parameters', 'Cut by detach (1)', 'Frozen (1)', 'rotation.fc.weight'])
      expect(text).toContain(part);
    find(host, 'Block');
    const own = sectionText(host, 'Why no gradient?');
    expect(own).toContain('block.cut Cut at detach.');
    expect(own).not.toContain('rotation');
  });

  it('is found by the name of a parameter that is nowhere in the drawing', () => {
    const host = shown({ record, error: null });
    find(host, 'rotation weight');
    expect(query(host, 'output').textContent).toBe('1 of 1');
    expect(query(host, '[data-found]').textContent).toContain('rotation.fc.weight');
  });

  it('requests the host to open the line of the detach', () => {
    const host = shown({ record, error: null });
    let detail: unknown = null;
    host.addEventListener('workbench:open', (event) => (detail = (event as CustomEvent).detail));
    query<HTMLElement>(host, '.wv-unreached .wv-link').click();
    expect(detail).toMatchObject({ kind: 'goto', source: { filename: 'a.py', line: 3 } });
  });

  it('has a chip for modules, in other words where all is frozen on purpose', () => {
    const state = new GraphState(
      graphOf(
        [
          { op: 'a', module: 'stem' },
          { op: 'b', module: 'stem', inputs: [0] },
          { op: 'c', module: 'block', inputs: [1] },
          { op: 'd', module: 'block', inputs: [2] },
        ],
        { unreached },
      ),
    );
    expect(state.unreached.chip(moduleOf(state, 'stem'))).toBe('1 frozen');
    expect(state.unreached.chip(moduleOf(state, 'block'))).toBe('1 without gradient');
    expect(state.unreached.chip(state.tree.root)).toBe('');
  });
});
