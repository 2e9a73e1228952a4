/** Small graphs written by hand, as the columns of a record. */
import {
  STORAGE_KINDS,
  type NonFinite,
  type StorageKind,
  type Unreached,
} from '@torch-workbench/records';
import type { GraphColumns } from '../src/graph/columns';

export interface NodeSpec {
  op: string;
  module?: string;
  inputs?: readonly number[];
  call?: number;
  kind?: 'operation' | 'parameter' | 'input';
  name?: string;
  shape?: string;
  saved?: number;
  /** Storages it holds, by their names in `storages`. */
  holds?: readonly string[];
  /** Norm of the gradient of its output; left out where backward did not run. */
  gradient?: number;
  nonFinite?: number;
}

export interface RecordSpec {
  model?: string;
  /** Name -> bytes, or bytes and kind. */
  storages?: Record<string, number | readonly [number, StorageKind]>;
  unreached?: readonly Unreached[];
  nonFinite?: NonFinite;
  /** Module path -> seconds of its forward. */
  seconds?: Record<string, number>;
}

const KINDS = ['operation', 'parameter', 'input'];

/** A record of nodes in forward order; `inputs` are rows that come before. The last row is the loss. */
export function graphOf(nodes: readonly NodeSpec[], spec: RecordSpec | string = {}): GraphColumns {
  const given = typeof spec === 'string' ? { model: spec } : spec;
  const { model = 'Net', storages = {}, unreached = [], seconds = {} }: RecordSpec = given;
  const strings: string[] = [];
  const known = new Map<string, number>();
  const text = (value: string): number => {
    const at = known.get(value) ?? strings.length;
    if (at === strings.length) strings.push(value);
    known.set(value, at);
    return at;
  };
  const forward = (path: string): number | null => seconds[path] ?? null;
  const modules = [{ path: '', cls: model, parent: -1, forward_s: forward('') }];
  const rows = new Map([['', 0]]);
  const module = (path: string): number => {
    const at = rows.get(path);
    if (at !== undefined) return at;
    const parent = path === 'loss' ? -1 : module(path.split('.').slice(0, -1).join('.'));
    modules.push({ path, cls: path === 'loss' ? '' : 'Block', parent, forward_s: forward(path) });
    rows.set(path, modules.length - 1);
    return modules.length - 1;
  };
  const edges = nodes.flatMap(({ inputs = [] }, to) => inputs.map((from) => [from, to] as const));
  const holds = nodes.flatMap(({ holds: held = [] }, row) =>
    held.map((name) => [row, name] as const),
  );
  const names = Object.keys(storages);
  const watched = nodes.some(({ gradient, nonFinite }) => gradient !== undefined || nonFinite);
  const column = (of: (node: NodeSpec, row: number) => number): number[] => nodes.map(of);
  return {
    title: 'test',
    model,
    step: 1,
    loss: 0.5,
    device: 'cpu',
    notes: [],
    strings,
    modules,
    sources: [{ filename: 'a.py', line: 3, cell: null, function: 'forward', text: 'x = f(x)' }],
    node_type: column(({ op }) => text(`${op}Backward0`)),
    node_op: column(({ op }) => text(op)),
    node_kind: column(({ kind = 'operation' }) => KINDS.indexOf(kind)),
    node_module: column(({ module: path = '' }) => module(path)),
    node_call: column(({ call }, row) => call ?? 1_000_000 + row),
    node_sequence: column((_, row) => row),
    node_shape: column(({ shape = '2×2' }) => text(shape)),
    node_dtype: column(() => text('float32')),
    node_output_bytes: column(() => 16),
    node_name: column(({ name = '' }) => text(name)),
    node_source: column(() => 0),
    node_saved_bytes: column(({ saved = 0 }) => saved),
    node_shared_bytes: column(() => 0),
    storage_bytes: names.map((name) => [storages[name] ?? 0].flat()[0] as number),
    storage_kind: names.map((name) =>
      STORAGE_KINDS.indexOf(([storages[name]].flat()[1] ?? 'activation') as StorageKind),
    ),
    hold_node: holds.map(([row]) => row),
    hold_storage: holds.map(([, name]) => names.indexOf(name)),
    hold_name: holds.map(([, name]) => text(name)),
    hold_shape: holds.map(() => text('2×2')),
    node_gradient_norm: column(({ gradient }) => gradient ?? NaN),
    node_gradient_max: column(({ gradient }) => gradient ?? NaN),
    node_gradient_zeros: column(({ gradient }) => (gradient === 0 ? 1 : 0.25)),
    node_gradient_non_finite: column(({ gradient, nonFinite }) =>
      gradient === undefined && nonFinite === undefined ? -1 : (nonFinite ?? 0),
    ),
    bin_node: [],
    bin_power: [],
    bin_share: [],
    gradients: watched,
    non_finite: given.nonFinite ?? null,
    unreached,
    edge_from: edges.map(([from]) => from),
    edge_to: edges.map(([, to]) => to),
    edge_bytes: edges.map(() => 16),
    branches: [],
    inner_node: [],
    inner_op: [],
    inner_module: [],
    inner_shape: [],
    inner_dtype: [],
    inner_source: [],
    inner_ends: [],
    link_from: [],
    link_to: [],
    root: nodes.length - 1,
    saved_bytes: nodes.reduce((sum, { saved = 0 }) => sum + saved, 0),
    parameter_bytes: 0,
    buffer_bytes: 0,
    input_bytes: 0,
  };
}

/** Operations one after the other in one module. */
export function chain(length: number, module = ''): NodeSpec[] {
  return Array.from({ length }, (_, row) => ({
    op: ['mul', 'add', 'tanh'][row % 3] ?? 'mul',
    module,
    inputs: row === 0 ? [] : [row - 1],
    saved: 8,
  }));
}

/** Residual blocks: two operations, and the block's input added to them. */
export function residual(blocks: number): NodeSpec[] {
  const nodes: NodeSpec[] = [{ op: 'stem' }];
  for (let block = 0; block < blocks; block += 1) {
    const from = nodes.length - 1;
    const module = `layers.${block}`;
    nodes.push({ op: 'conv', module, inputs: [from], saved: 64 });
    nodes.push({ op: 'relu', module, inputs: [from + 1], saved: 64 });
    nodes.push({ op: 'add', module, inputs: [from + 2, from] });
  }
  nodes.push({ op: 'cross_entropy', module: 'loss', inputs: [nodes.length - 1] });
  return nodes;
}

/** Random directed graphs over random modules, the same for the same seed. */
export function random(count: number, seed: number): NodeSpec[] {
  let state = seed;
  const next = (below: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
  const paths = ['', 'a', 'a.x', 'a.y', 'b', 'b.x', 'b.x.deep', 'loss'];
  let module = '';
  return Array.from({ length: count }, (_, row) => {
    if (next(3) === 0) module = paths[next(paths.length)] ?? '';
    const inputs = new Set<number>();
    if (row > 0 && next(8) > 0) inputs.add(row - 1);
    for (let extra = next(3); extra > 0 && row > 0; extra -= 1) inputs.add(next(row));
    return { op: `op${next(5)}`, module, inputs: [...inputs], saved: next(1000) };
  });
}
