/**
 * What activation checkpointing of a module would free, estimated from one record: storages that
 * only its operations hold go, and inputs that nothing outside holds must be kept from then on. The
 * same rule as `workbench/graph/questions/checkpoint_savings.py`, whose figures the tests of both are held to.
 */
import { NODE_KINDS } from '@torch-workbench/records';
import type { Column, GraphColumns } from './columns';
import { oneLine, shorten } from './format';
import type { Group } from './groups';
import { isOperation, type Operation } from './operations';
import { within, type Storages } from './storages';

export interface CheckpointEstimate {
  /** Modules that would be checkpointed: one, or the members of a rolled-up box. */
  modules: number;
  /** Activations held only inside, less the inputs. */
  freed: number;
  /** Inputs that only the module holds now and that a checkpoint keeps. */
  inputs: number;
  /** Forward of all of them once more, host seconds; null where it was not watched. */
  seconds: number | null;
  /** Qualified name of the first of them. */
  path: string;
}

/** The estimate for a module; null where nothing would be freed. */
export function checkpointEstimate(
  group: Group,
  record: GraphColumns,
  operations: readonly Operation[],
  storages: Storages,
): CheckpointEstimate | null {
  const parts = partsOf(group);
  const found = parts.map((part) => estimate(part, record, operations, storages));
  const freed = found.reduce((sum, part) => sum + part.freed, 0);
  const first = parts[0];
  if (!first || freed <= 0) return null;
  return {
    modules: parts.length,
    freed,
    inputs: found.reduce((sum, part) => sum + part.inputs, 0),
    seconds: secondsOf(parts, record),
    path: first.path,
  };
}

/** How a module is checkpointed: by a call in the forward of the module around it, or by a mode. */
export interface CheckpointCall {
  code: string;
  /** Path of the module around it. */
  where: string;
  /** As `exp.modes` and `wb.Modes` take it; of several modules, the list that they are in. */
  mode: string;
}

/** A list's members are reached by index, and several of them in a loop. */
export function checkpointCall(path: string, modules: number): CheckpointCall {
  const names = oneLine(path.slice(0, 400)).split('.');
  let own = names.length - 1;
  while (own > 0 && /^\d+$/.test(names[own] ?? '')) own -= 1;
  const several = modules > 1;
  const indices = several ? [] : names.slice(own + 1);
  const target = `self.${names[own]}${indices.map((index) => `[${index}]`).join('')}`;
  const call = `x = checkpoint(${several ? 'layer' : target}, x, use_reentrant=False)`;
  return {
    code: several ? `for layer in ${target}:\n    ${call}` : call,
    where: shorten(names.slice(0, own).join('.') || 'the model', 80),
    mode: `checkpoint:${[...names.slice(0, own + 1), ...indices].join('.')}`,
  };
}

function partsOf(group: Group): Group[] {
  if (group.kind === 'module') return group.cls ? [group] : [];
  if (group.kind === 'root') return [];
  return group.children.flatMap((child) => (isOperation(child) ? [] : partsOf(child)));
}

/** Sum over distinct modules: a module called twice has one figure for both calls. */
function secondsOf(parts: readonly Group[], record: GraphColumns): number | null {
  const paths = new Set(parts.map(({ path }) => path));
  let sum = 0;
  for (const { path, forward_s: seconds } of record.modules) {
    if (!paths.has(path)) continue;
    if (seconds === null) return null;
    sum += seconds;
  }
  return sum;
}

/** Operations whose output is in the storage of their input. */
export const VIEW =
  /^((Reshape)?Alias|AsStrided|Chunk|Diagonal|Expand|Narrow|Permute|Select|Slice|Split(WithSizes)?|(Uns|S)queeze|T(ranspose)?|Unbind|Unfold|(Unsafe)?View)Backward0$/;

/** Which input a saved tensor of this name is; the first for every other name. */
const SLOTS = new Map(Object.entries({ other: 1, mat2: 1, vec2: 1, key: 1, value: 2, tensor2: 1 }));

function estimate(
  group: Group,
  record: GraphColumns,
  operations: readonly Operation[],
  storages: Storages,
): { freed: number; inputs: number } {
  const inside = new Set(within(group, operations).flatMap(({ rows }) => rows));
  const kept = new Map<number, number>();
  const { base, isHeld } = holdersOutside(record, inside);
  for (const [edge, maker] of Array.from(record.edge_from, Number).entries()) {
    if (inside.has(maker) || !inside.has(record.edge_to[edge])) continue;
    const from = base(maker);
    if (isLeaf(record, from) || isHeld(from)) continue;
    // A view keeps all of what it is a view of.
    const bytes = from === maker ? record.edge_bytes[edge] : record.node_output_bytes[from];
    kept.set(from, Math.max(kept.get(from) ?? 0, bytes));
  }
  const inputs = [...kept.values()].reduce((sum, bytes) => sum + bytes, 0);
  return { freed: storages.holding(group).alone - inputs, inputs };
}

const isLeaf = (record: GraphColumns, row: number): boolean =>
  ['parameter', 'input'].includes(NODE_KINDS[record.node_kind[row]] ?? '');

/** Which values nodes outside hold anyway; `base` is the node that made the storage of a value. */
function holdersOutside(
  record: GraphColumns,
  inside: ReadonlySet<number>,
): { base: (row: number) => number; isHeld: (base: number) => boolean } {
  const text = (column: Column, row: number): string => record.strings[column[row]] ?? '';
  const makers: number[][] = Array.from(record.node_type, () => []);
  const users: number[][] = makers.map(() => []);
  const holds: number[][] = makers.map(() => []);
  for (let edge = 0; edge < record.edge_from.length; edge += 1) {
    const [from, to] = [record.edge_from[edge], record.edge_to[edge]];
    makers[to].push(from);
    users[from].push(to);
  }
  for (let hold = 0; hold < record.hold_node.length; hold += 1)
    holds[record.hold_node[hold]].push(hold);

  const shape = (row: number): number => record.node_shape[row];
  const isView = (row: number): boolean => VIEW.test(text(record.node_type, row));
  /** Whether `row` saved something of that shape under a name that fits. */
  const saved = (row: number, of: number, fits: (name: string) => boolean): boolean =>
    holds[row].some((hold) => record.hold_shape[hold] === of && fits(text(record.hold_name, hold)));
  const savedInput = (user: number, maker: number): boolean => {
    const alike = makers[user].filter((other) => shape(other) === shape(maker));
    const at = alike.indexOf(maker);
    const fits = (name: string): boolean => alike.length === 1 || (SLOTS.get(name) ?? 0) === at;
    return saved(user, shape(maker), (name) => !name.startsWith('result') && fits(name));
  };
  return {
    base(row) {
      let found = row;
      while (isView(found)) {
        const [maker] = makers[found];
        if (maker === undefined) break;
        found = maker;
      }
      return found;
    },
    isHeld(base) {
      const isResult = (name: string): boolean => /^(result0?|output)$/.test(name);
      if (!inside.has(base) && saved(base, shape(base), isResult)) return true;
      const pending = [base];
      for (let row = pending.pop(); row !== undefined; row = pending.pop())
        for (const user of users[row])
          if (isView(user)) pending.push(user);
          else if (!inside.has(user) && savedInput(user, row)) return true;
      return false;
    },
  };
}
