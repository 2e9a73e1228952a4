/**
 * The inside of compiled nodes: what AOTAutograd's backward graph runs, as operations below the one
 * that stands for the node.
 *
 * Arrows follow the data, as everywhere. A gradient is handed on against it, so a link between two
 * operations that work on gradients is turned around; one that starts at an operation which only
 * computes a value of the forward once more is drawn as it runs. The compiled operation comes first:
 * it holds what was saved, and its parameters. What takes the gradient that comes into the node leads
 * on to whatever used the node's output.
 */
import type { Column, GraphColumns } from './columns';
import { size, type Group } from './groups';
import { bareOperation, type Flow, type Operation, type Operations } from './operations';

/** Values of `inner_ends`, as in `workbench/records/graph.py`. */
const TAKES = 1;
const GIVES = 2;

/** More operations than this and the box of a compiled one starts collapsed, and those in it. */
const LARGE = 24;

interface Inside {
  /** Operations in data order; their ids count from 0. */
  operations: Operation[];
  flows: Flow[];
  /** Positions of operations that go on from the compiled one, and of those that lead out. */
  first: number[];
  last: number[];
}

/** Adds the operations inside compiled nodes to those of the record. */
export function withInside(
  record: GraphColumns,
  { operations, flows, root }: Operations,
): Operations {
  if (record.inner_node.length === 0) return { operations, flows, root };
  const rows = rowsOfNodes(record);
  const all: Operation[] = [];
  const inside = operations.map((operation) => {
    const mine = operation.rows.flatMap((row) => rows.get(row) ?? []);
    operation.id = all.length;
    all.push(operation);
    if (mine.length === 0) return null;
    const found = readInside(record, mine, operation);
    operation.host = operation;
    for (const one of found.operations) {
      one.id = all.length;
      all.push(one);
    }
    return found;
  });
  const result = flows.flatMap(({ from, to, bytes }): Flow[] => {
    const [source, target] = [operations[from]?.id ?? 0, operations[to]?.id ?? 0];
    const ends = inside[from]?.last ?? [];
    if (ends.length === 0) return [{ from: source, to: target, bytes }];
    return ends.map((at) => ({ from: source + 1 + at, to: target, bytes }));
  });
  inside.forEach((found, index) => {
    const host = operations[index]?.id ?? 0;
    for (const at of found?.first ?? []) result.push({ from: host, to: host + 1 + at, bytes: 0 });
    for (const { from, to } of found?.flows ?? [])
      result.push({ from: host + 1 + from, to: host + 1 + to, bytes: 0 });
  });
  return { operations: all, flows: result, root: operations[root]?.id ?? -1 };
}

/** Whether a box starts collapsed because it is large and compiled, or stands in one that is. */
export function closedInside(group: Group): boolean {
  for (let at: Group | null = group; at; at = at.parent)
    if (at.kind === 'compiled' && size(at) > LARGE) return true;
  return false;
}

/** Inner rows of every compiled node, in the order in which backward runs them. */
function rowsOfNodes({ inner_node: nodes }: GraphColumns): Map<number, number[]> {
  const rows = new Map<number, number[]>();
  for (let row = 0; row < nodes.length; row += 1) {
    const node = nodes[row];
    const known = rows.get(node);
    if (known) known.push(row);
    else rows.set(node, [row]);
  }
  return rows;
}

function readInside(record: GraphColumns, rows: readonly number[], host: Operation): Inside {
  const local = new Map(rows.map((row, index) => [row, index]));
  const links: [number, number][] = [];
  for (let link = 0; link < record.link_from.length; link += 1) {
    const from = local.get(record.link_from[link]);
    const to = local.get(record.link_to[link]);
    if (from !== undefined && to !== undefined) links.push([from, to]);
  }
  const ends = rows.map((row) => record.inner_ends[row]);
  const gradient = ends.map((end) => (end & TAKES) !== 0);
  // Links are in the order of the run: what is behind a gradient is known before what follows.
  for (const [from, to] of links.sort((a, b) => a[0] - b[0]))
    gradient[to] ||= gradient[from] ?? false;
  const flows = links.map(([from, to]) => (gradient[from] ? [to, from] : [from, to]));
  const fed = new Set(flows.map(([, to]) => to));
  const order = dataOrder(
    rows.map((row) => record.inner_module[row]),
    flows,
    gradient,
  );
  const position = new Array<number>(rows.length).fill(0);
  order.forEach((row, at) => (position[row] = at));
  const at = (wanted: (row: number) => boolean): number[] =>
    order.filter(wanted).map((row) => position[row]);
  return {
    operations: order.map((row) => operationOf(record, rows[row], host)),
    flows: flows.map(([from = 0, to = 0]) => ({
      from: position[from],
      to: position[to],
      bytes: 0,
    })),
    first: at((row) => !fed.has(row) && (!gradient[row] || (ends[row] & GIVES) !== 0)),
    last: at((row) => (ends[row] & TAKES) !== 0),
  };
}

/**
 * A topological order that stays in a module for as long as it can, so that a module is one box.
 * What backward runs last comes first; a value computed once more comes right before its use.
 */
function dataOrder(modules: number[], flows: number[][], gradient: boolean[]): number[] {
  const waiting = new Int32Array(modules.length);
  const next: number[][] = modules.map(() => []);
  const values: number[][] = modules.map(() => []);
  for (const [from = 0, to = 0] of flows) {
    if (!gradient[from]) values[to].push(from);
    else {
      next[from].push(to);
      waiting[to] += 1;
    }
  }
  const order: number[] = [];
  const done = new Set<number>();
  const add = (row: number): void => {
    const found = [row];
    for (const one of found)
      for (const value of values[one]) if (!done.has(value)) found.push(value);
    // Values are made in the order of the run.
    for (const one of [...new Set(found.slice(1))].sort((a, b) => a - b)) take(one);
    take(row);
  };
  const take = (row: number): void => {
    done.add(row);
    order.push(row);
  };
  const ready = modules.flatMap((_, row) => (gradient[row] && waiting[row] === 0 ? [row] : []));
  let now = -1;
  while (ready.length > 0) {
    let best = 0;
    for (let at = 1; at < ready.length; at += 1) {
      const [one, other] = [ready[at], ready[best]];
      const [stays, stayed] = [modules[one] === now, modules[other] === now];
      if (stays === stayed ? one > other : stays) best = at;
    }
    const [row = 0] = ready.splice(best, 1);
    add(row);
    now = modules[row] ?? -1;
    for (const to of next[row]) {
      waiting[to] -= 1;
      if (waiting[to] === 0) ready.push(to);
    }
  }
  for (const row of modules.keys()) if (!done.has(row)) add(row);
  return order;
}

function operationOf(record: GraphColumns, row: number, host: Operation): Operation {
  const text = (column: Column): string => record.strings[column[row]] ?? '';
  return {
    ...bareOperation(text(record.inner_op), host.id),
    type: 'backward operation in compiled code',
    module: record.inner_module[row],
    shape: text(record.inner_shape),
    dtype: text(record.inner_dtype),
    computed: text(record.inner_dtype),
    source: record.inner_source[row],
    host,
  };
}
