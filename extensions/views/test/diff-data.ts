/** Small diffs written by hand, as the columns of a record. */
import { DIFF_STATES, type DiffSide, type DiffState } from '@torch-workbench/records';
import type { DiffColumns } from '../src/diff/columns';
import { graphOf, type NodeSpec } from './graph-data';

/** A node of the union; what a field of B is left out of is as in A. */
export interface UnionSpec extends NodeSpec {
  state?: DiffState;
  b?: { shape?: string; dtype?: string; saved?: number; gradient?: number; source?: number };
}

export interface DiffSpec {
  sentence?: string;
  loss?: readonly [number, number];
}

const side = (title: string, root: number, loss: number): DiffSide => ({
  title,
  model: 'Net',
  experiment: null,
  step: null,
  loss,
  device: 'cpu',
  torch_version: '2.13.0',
  captured_at: 0,
  root,
  num_operations: 5,
  num_parameters: 2,
  saved_bytes: 100,
  parameter_bytes: 0,
  buffer_bytes: 0,
  input_bytes: 0,
  gradients: true,
  gradient_norm: 1,
});

/** The union of two captures; the last row that each of them has made its loss. */
export function diffOf(nodes: readonly UnionSpec[], spec: DiffSpec = {}): DiffColumns {
  const record = graphOf(nodes);
  const strings = [...record.strings];
  const text = (value: string): number => {
    const at = strings.indexOf(value);
    return at >= 0 ? at : strings.push(value) - 1;
  };
  const has = (letter: 'a' | 'b', state: DiffState = 'same'): boolean =>
    state !== (letter === 'a' ? 'added' : 'removed');
  const inA = nodes.map(({ state }, row) => (has('a', state) ? row : -1));
  const inB = nodes.map(({ state }, row) => (has('b', state) ? row : -1));
  const column = (of: (node: UnionSpec, row: number) => number, missing: number): number[] =>
    nodes.map((node, row) => ((inB[row] ?? -1) >= 0 ? of(node, row) : missing));
  const [lossA, lossB] = spec.loss ?? [0.5, 0.5];
  const sentence = spec.sentence ?? 'B changed something.';
  const edgeState = record.edge_bytes as number[];
  return {
    ...record,
    title: 'A → B',
    strings,
    a: side('before', Math.max(...inA), lossA),
    b: side('after', Math.max(...inB), lossB),
    sentence,
    cause_source: -1,
    node_state: nodes.map(({ state = 'same' }) => DIFF_STATES.indexOf(state)),
    node_a: inA,
    node_b: inB,
    node_shape_b: column(({ b, shape = '2×2' }) => text(b?.shape ?? shape), -1),
    node_dtype_b: column(({ b }) => text(b?.dtype ?? 'float32'), -1),
    node_source_b: column(({ b }) => b?.source ?? 0, -1),
    node_saved_bytes_b: column(({ b, saved = 0 }) => b?.saved ?? saved, -1),
    node_shared_bytes_b: column(() => 0, -1),
    node_gradient_norm_b: column(({ b, gradient }) => b?.gradient ?? gradient ?? NaN, NaN),
    node_gradient_non_finite_b: column(({ gradient }) => (gradient === undefined ? -1 : 0), -1),
    edge_state: edgeState.map((_, edge) => edgeStateOf(record.edge_from, record.edge_to, edge)),
    edge_bytes_b: edgeState.map(() => 16),
  };

  function edgeStateOf(from: ArrayLike<unknown>, to: ArrayLike<unknown>, edge: number): number {
    const ends = [from[edge], to[edge]].map((row) => nodes[Number(row)]?.state ?? 'same');
    if (ends.includes('removed')) return DIFF_STATES.indexOf('removed');
    return DIFF_STATES.indexOf(ends.includes('added') ? 'added' : 'same');
  }
}

/** A forward that took its late branch in A and left early in B. */
export const EARLY_EXIT: readonly UnionSpec[] = [
  { op: 'conv', module: 'stem', saved: 64, gradient: 1, b: { gradient: 4 } },
  { op: 'relu', module: 'stem', saved: 64, inputs: [0], gradient: 0.5 },
  {
    op: 'linear',
    module: 'aux',
    inputs: [1],
    saved: 8,
    state: 'changed',
    b: { dtype: 'bfloat16', saved: 4 },
  },
  { op: 'conv', module: 'late', inputs: [1], saved: 32, state: 'removed' },
  { op: 'relu', module: 'late', inputs: [3], saved: 32, state: 'removed' },
  { op: 'add', inputs: [2, 4], state: 'removed' },
  { op: 'div', inputs: [2], saved: 2, state: 'added' },
];
