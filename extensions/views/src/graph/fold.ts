/** Which backward nodes make one operation. */
import { VIEW } from './checkpoint';
import type { GraphColumns } from './columns';

/** Values of `node_kind`, as in `workbench/records/graph.py`. */
const PARAMETER = 1;
export const INPUT = 2;
export const COMPILED = 3;

export interface Folded {
  /** Rows of every operation, in record order. */
  groups: number[][];
  /** Operation of a row, -1 for leaves. */
  owner: Int32Array;
}

/** One group per Python call; with `byCall` off, one per backward node. */
export function foldCalls(record: GraphColumns, byCall: boolean): Folded {
  const count = record.node_op.length;
  const owner = new Int32Array(count).fill(-1);
  const groups: number[][] = [];
  const seen = new Map<string, number>();
  // A call of compiled code may make several nodes, each with an inside of its own.
  const compiled = new Set<number>();
  for (let row = 0; row < count; row += 1)
    if (record.node_kind[row] === COMPILED) compiled.add(record.node_call[row]);
  for (let row = 0; row < count; row += 1) {
    const kind = record.node_kind[row];
    if (kind === PARAMETER || kind === INPUT) continue;
    const call = record.node_call[row];
    const key =
      byCall && call >= 0 && !compiled.has(call) ? `${call}/${record.node_module[row]}` : '';
    let group = key === '' ? undefined : seen.get(key);
    if (group === undefined) {
      group = groups.length;
      groups.push([]);
      if (key !== '') seen.set(key, group);
    }
    groups[group].push(row);
    owner[row] = group;
  }
  return { groups, owner };
}

/** Nodes besides views that hand on what they get in another order, type or place. */
export const COPY = /^(Clone|Mt|Squeeze|ToCopy)Backward/;

/**
 * Folds what only hands a parameter on (the transpose in front of a matrix product, a cast by
 * autocast) into the one operation of the same module that uses it, so the parameter is its chip.
 * What computes something is an operation of its own, whatever it is fed by.
 */
export function foldParameters(record: GraphColumns, folded: Folded): Folded {
  // A cast in front of a transpose takes two passes; nothing real takes more than a few.
  let result = folded;
  for (let pass = 0, before = -1; pass < 4 && result.groups.length !== before; pass += 1) {
    before = result.groups.length;
    result = foldOnce(record, result);
  }
  return result;
}

function foldOnce(record: GraphColumns, { groups, owner }: Folded): Folded {
  const consumer = new Int32Array(groups.length).fill(NONE);
  const plain = groups.map((rows) =>
    rows.every((row) => {
      const type = record.strings[record.node_type[row]] ?? '';
      return VIEW.test(type) || COPY.test(type);
    }),
  );
  const fed = new Array<boolean>(groups.length).fill(false);
  for (let edge = 0; edge < record.edge_from.length; edge += 1) {
    const row = record.edge_from[edge];
    const from = owner[row] ?? -1;
    const to = owner[record.edge_to[edge]] ?? -1;
    if (to < 0 || from === to) continue;
    if (from < 0) fed[to] = fed[to] || record.node_kind[row] === PARAMETER;
    else plain[to] = false;
    if (from >= 0) consumer[from] = consumer[from] === NONE || consumer[from] === to ? to : MANY;
  }
  const moduleOf = (group: number): number => record.node_module[groups[group]?.[0] ?? 0];
  for (let group = 0; group < groups.length; group += 1) {
    const to = consumer[group] ?? NONE;
    if (to < 0 || !plain[group] || !fed[group] || moduleOf(group) !== moduleOf(to)) continue;
    if (owner[record.root] === group) continue;
    for (const row of groups[group]) owner[row] = to;
    groups[to].unshift(...groups[group]);
    groups[group] = [];
  }
  const kept = groups.filter((rows) => rows.length > 0);
  kept.forEach((rows, index) => rows.forEach((row) => (owner[row] = index)));
  return { groups: kept, owner };
}

const NONE = -1;
const MANY = -2;
