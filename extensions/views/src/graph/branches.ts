/**
 * Tests that Python made of tensors, as operations of their own: a box between what was
 * tested and what was made next. No data flows through it, so its lines are dotted and no question
 * about data or gradients ever sees them.
 */
import type { Branch } from '@torch-workbench/records';
import type { GraphColumns } from './columns';
import { oneLine } from './format';
import { bareOperation, type Flow, type Operation, type Operations } from './operations';

/** Tests of one line that came out the same, one after the other at one place of the graph. */
export interface BranchTest {
  first: Branch;
  times: number;
  /** `if`, `while` or `assert`. */
  word: string;
  /** As it is written; the whole line where that alone is known. */
  condition: string;
  before: Operation | null;
  after: Operation | null;
}

/** Adds a box for each test; `testFlows` are their lines. */
export function withBranches(record: GraphColumns, read: Operations): Operations {
  if (record.branches.length === 0) return read;
  const { operations, flows, root } = read;
  const owner = new Map(operations.flatMap((one) => one.rows.map((row) => [row, one])));
  const found: BranchTest[] = [];
  for (const first of record.branches) {
    const { source, taken, module } = first;
    const before = owner.get(first.before) ?? null;
    const after = owner.get(first.after) ?? null;
    const last = found[found.length - 1];
    const same =
      last?.first.source === source && last.first.taken === taken && last.first.module === module;
    if (last && same && last.before === before && last.after === after) last.times += 1;
    else found.push({ first, times: 1, ...wording(record, first), before, after });
  }
  const added = new Map<Operation | null, Operation[]>();
  for (const test of found) {
    // Out of order, as on another thread: it stands where it can.
    if (test.before && test.after && test.before.id >= test.after.id) test.before = null;
    const list = added.get(test.after) ?? [];
    added.set(test.after, list);
    list.push(operationOf(record, test, operations));
  }
  const all = [...operations, null].flatMap((one) => [
    ...(added.get(one) ?? []),
    ...(one ? [one] : []),
  ]);
  all.forEach((one, id) => (one.id = id));
  const testFlows: Flow[] = [];
  all.forEach(({ id, test }) => {
    if (!test) return;
    // Of several at one place each hangs below the one before it.
    const above = all[id - 1]?.test;
    const from = above && above.before === test.before ? id - 1 : test.before?.id;
    if (from !== undefined) testFlows.push({ from, to: id, bytes: 0 });
    const below = all[id + 1]?.test;
    if (test.after && below?.before !== test.before)
      testFlows.push({ from: id, to: test.after.id, bytes: 0 });
  });
  return {
    operations: all,
    flows: flows.map(({ from, to, bytes }) => ({
      from: operations[from]?.id ?? 0,
      to: operations[to]?.id ?? 0,
      bytes,
    })),
    root: operations[root]?.id ?? -1,
    testFlows,
  };
}

/** `0.730 > 0.750 is False`. */
export function outcome({ first, times, condition }: BranchTest): string {
  const { values, taken } = first;
  const shown = values && values !== condition ? `${values} is ` : '';
  return `${shown}${taken ? 'True' : 'False'}${times > 1 ? ` × ${times}` : ''}`;
}

function wording(
  record: GraphColumns,
  { condition, source }: Branch,
): Pick<BranchTest, 'word' | 'condition'> {
  const text = record.sources[source]?.text ?? '';
  const word = /^\s*(while|assert)\b/.exec(text)?.[1] ?? 'if';
  return { word, condition: oneLine(condition || text.replace(/^\s*(if|while|assert)\b/, '')) };
}

function operationOf(
  record: GraphColumns,
  test: BranchTest,
  operations: readonly Operation[],
): Operation {
  const { first, word, condition, after } = test;
  const next = after?.id ?? operations.length;
  return {
    ...bareOperation(`${word} ${condition}`),
    type: 'test',
    module: homeOf(record, first.module, operations[next - 1], after),
    source: first.source,
    test,
  };
}

/**
 * The module in whose box it is drawn: the one that tested, or the nearest that does not cut
 * another box in two, as its neighbours in the forward order stand in them.
 */
function homeOf(
  record: GraphColumns,
  module: number,
  ...neighbours: (Operation | null | undefined)[]
): number {
  const [mine, ...beside] = [
    module,
    ...neighbours.map((one) => (one?.host ?? one)?.module ?? -1),
  ].map((at) => {
    const chain: number[] = [];
    for (let up = at; up >= 0; up = record.modules[up]?.parent ?? -1) chain.unshift(up);
    return chain;
  });
  const common = (a: readonly number[] = [], b: readonly number[] = []): number[] => {
    const end = a.findIndex((one, depth) => b[depth] !== one);
    return end < 0 ? [...a] : a.slice(0, end);
  };
  const around = common(...beside);
  const near = beside.map((chain) => common(mine, chain)).sort((a, b) => b.length - a.length)[0];
  const innermost = near && near.length > around.length ? near : around;
  return innermost[innermost.length - 1] ?? -1;
}
