/**
 * From backward nodes to what a person reads: one operation per Python call, parameters folded into
 * the operations that use them, edges between operations. The order of the operations is a
 * topological order as close to the forward order (autograd's sequence numbers) as the graph allows.
 */
import type { BranchTest } from './branches';
import type { Column, GraphColumns } from './columns';
import { computedIn } from './dtypes';
import { COMPILED, foldCalls, foldParameters, INPUT, type Folded } from './fold';
import { gradientOf, type Gradient } from './gradients';
import { Heap } from './heap';

export type { GraphColumns, SourceText } from './columns';

/** A leaf of the graph: a parameter, or an input that requires a gradient. */
export interface Leaf {
  name: string;
  shape: string;
  dtype: string;
  bytes: number;
  input: boolean;
  /** What backward gave it. */
  gradient: Gradient | null;
  row: number;
}

/** One Python call and the backward nodes it made. */
export interface Operation {
  kind: 'operation';
  /** Position in the forward order. */
  id: number;
  /** The call, `batch_norm`. */
  op: string;
  /** The module it makes up by itself, `norm`; the call's own name otherwise. */
  name: string;
  type: string;
  module: number;
  compiled: boolean;
  rows: number[];
  shape: string;
  dtype: string;
  /** What it computes in, as `dtypes.ts` writes it; `dtype` is that of its output. */
  computed: string;
  outputBytes: number;
  saved: number;
  shared: number;
  source: number;
  leaves: Leaf[];
  /** Of its output. */
  gradient: Gradient | null;
  /** Seconds of the module that it makes up by itself; null for a call inside a larger one. */
  seconds: number | null;
  /** The compiled operation in whose box it stands: itself, or the one that runs it in backward. */
  host: Operation | null;
  /** Whether this operation made the loss. */
  loss: boolean;
  /** What else must be equal for two operations to be rolled up together. */
  tag: string;
  /** Which of two captures have it: 1, 2, or 3 for both (and for a graph of one capture). */
  sides: number;
  /** Of a test that Python made of a tensor (`branches.ts`): no operation, but drawn like one. */
  test?: BranchTest;
}

export interface Flow {
  from: number;
  to: number;
  bytes: number;
}

export interface Operations {
  operations: Operation[];
  flows: Flow[];
  /** Operation that made the loss, -1 when the graph has none. */
  root: number;
  /** Lines to and from tests, along which nothing flows. */
  testFlows?: Flow[];
}

/** Whether an item of the drawing is an operation, not a box around some. */
export function isOperation(item: { kind: string }): item is Operation {
  return item.kind === 'operation';
}

/** Whether it runs inside a compiled node, or is a test: it has no bytes and no gradient. */
export function isInner(operation: Operation): boolean {
  const { host, test } = operation;
  return test !== undefined || (host !== null && host !== operation);
}

/** Groups rows into operations and orders them; linear up to one heap pass. */
export function readOperations(record: GraphColumns): Operations {
  const folded = foldParameters(record, foldCalls(record, true));
  const order = topological(record, folded);
  if (order !== null) return assemble(record, folded, order);
  // Two calls that feed each other cannot be one box each: show every backward node by itself.
  const single = foldCalls(record, false);
  return assemble(record, single, topological(record, single) ?? single.groups.map((_, i) => i));
}

/** Kahn's algorithm, the lowest sequence number first; null when a cycle is left. */
function topological(record: GraphColumns, { groups, owner }: Folded): number[] | null {
  const waiting = new Int32Array(groups.length);
  const next: number[][] = groups.map(() => []);
  for (let edge = 0; edge < record.edge_from.length; edge += 1) {
    const from = owner[record.edge_from[edge]] ?? -1;
    const to = owner[record.edge_to[edge]] ?? -1;
    if (from < 0 || to < 0 || from === to) continue;
    next[from].push(to);
    waiting[to] += 1;
  }
  const keys = groups.map((rows) =>
    rows.reduce((key, row) => Math.max(key, record.node_sequence[row]), -1),
  );
  const heap = new Heap(keys);
  waiting.forEach((count, group) => {
    if (count === 0) heap.push(group);
  });
  const order: number[] = [];
  for (let group = heap.pop(); group >= 0; group = heap.pop()) {
    order.push(group);
    for (const to of next[group]) {
      waiting[to] -= 1;
      if (waiting[to] === 0) heap.push(to);
    }
  }
  return order.length === groups.length ? order : null;
}

function assemble(record: GraphColumns, { groups, owner }: Folded, order: number[]): Operations {
  const position = new Int32Array(groups.length);
  const operations = order.map((group, id) => {
    position[group] = id;
    return operationOf(record, groups[group], id);
  });
  const sums = new Map<number, Flow>();
  const makers: number[][] = [];
  for (let edge = 0; edge < record.edge_from.length; edge += 1) {
    const row = record.edge_from[edge];
    (makers[record.edge_to[edge]] ??= []).push(row);
    const target = owner[record.edge_to[edge]] ?? -1;
    if (target < 0) continue;
    const to = position[target];
    const source = owner[row] ?? -1;
    if (source < 0) {
      const leaves = operations[to].leaves;
      if (leaves.every((leaf) => leaf.row !== row)) leaves.push(leafOf(record, row));
      continue;
    }
    const from = position[source];
    if (from === to) continue;
    const bytes = record.edge_bytes[edge];
    const key = from * operations.length + to;
    const flow = sums.get(key);
    if (flow === undefined) sums.set(key, { from, to, bytes });
    else flow.bytes = Math.max(flow.bytes, bytes);
  }
  for (const one of operations) one.computed = computedIn(record, one.rows, makers);
  const root = owner[record.root] ?? -1;
  return { operations, flows: [...sums.values()], root: root < 0 ? -1 : (position[root] ?? -1) };
}

/** An operation of which nothing but its name is known, and that backward needs nothing of. */
export function bareOperation(op: string, id = 0): Operation {
  return {
    kind: 'operation',
    id,
    op,
    name: op,
    type: '',
    module: -1,
    compiled: false,
    rows: [],
    shape: '',
    dtype: '',
    computed: '',
    outputBytes: 0,
    saved: 0,
    shared: 0,
    source: -1,
    leaves: [],
    gradient: null,
    seconds: null,
    host: null,
    loss: false,
    tag: '',
    sides: 3,
  };
}

function operationOf(record: GraphColumns, rows: number[], id: number): Operation {
  const main = rows[rows.length - 1];
  const text = (column: Column): string => record.strings[column[main]] ?? '';
  const sum = (column: Column): number => rows.reduce((t, row) => t + column[row], 0);
  const op = text(record.node_op) || text(record.node_type) || 'operation';
  return {
    ...bareOperation(op, id),
    type: text(record.node_type),
    module: record.node_module[main],
    compiled: record.node_kind[main] === COMPILED,
    rows,
    shape: text(record.node_shape),
    dtype: text(record.node_dtype),
    outputBytes: record.node_output_bytes[main],
    saved: sum(record.node_saved_bytes),
    shared: sum(record.node_shared_bytes),
    source: record.node_source[main],
    gradient: gradientOf(record, main),
    loss: rows.includes(record.root),
  };
}

function leafOf(record: GraphColumns, row: number): Leaf {
  const text = (column: Column): string => record.strings[column[row]] ?? '';
  const input = record.node_kind[row] === INPUT;
  return {
    name: text(record.node_name) || (input ? 'input' : 'parameter'),
    shape: text(record.node_shape),
    dtype: text(record.node_dtype),
    bytes: record.node_output_bytes[row],
    input,
    gradient: gradientOf(record, row),
    row,
  };
}
