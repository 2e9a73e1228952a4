/**
 * What activation checkpointing of a module would free, estimated from one record: storages that
 * only its operations hold go, and inputs that nobody outside holds must be kept from then on. The
 * same rule as `workbench/graph/checkpointing.py`.
 */
import type { GraphColumns } from './columns';
import { oneLine, shorten } from './format';
import type { Group } from './groups';
import type { Flow, Operation } from './operations';
import type { Storages } from './storages';

export interface CheckpointEstimate {
  /** Modules that would be checkpointed: one, or the members of a rolled-up card. */
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
  flows: readonly Flow[],
  storages: Storages,
): CheckpointEstimate | null {
  const parts = partsOf(group);
  const found = parts.map((part) => estimate(part, operations, flows, storages));
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

/**
 * The call that checkpoints a module, as it stands in the forward of the module around it: a list's
 * members are reached by index, and several of them in a loop.
 */
export function checkpointCall(path: string, modules: number): { code: string; where: string } {
  const names = oneLine(path.slice(0, 400)).split('.');
  let own = names.length - 1;
  while (own > 0 && /^\d+$/.test(names[own] ?? '')) own -= 1;
  const where = shorten(names.slice(0, own).join('.') || 'the model', 80);
  const [head = '', ...indices] = names.slice(own);
  if (modules > 1)
    return {
      code: `for layer in self.${head}:\n    x = checkpoint(layer, x, use_reentrant=False)`,
      where,
    };
  const target = `${head}${indices.map((index) => `[${index}]`).join('')}`;
  return { code: `x = checkpoint(self.${target}, x, use_reentrant=False)`, where };
}

function partsOf(group: Group): Group[] {
  if (group.kind === 'module') return group.cls ? [group] : [];
  if (group.kind === 'root') return [];
  return group.children.flatMap((child) => (child.kind === 'operation' ? [] : partsOf(child)));
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

/** Operations whose output lies in the storage of their input. */
const VIEW =
  /^(Alias|AsStrided|Chunk|Diagonal|Expand|Narrow|Permute|ReshapeAlias|Select|Slice|Split(WithSizes)?|Squeeze|T|Transpose|Unbind|Unfold|(Unsafe)?View|Unsqueeze)Backward0$/;

function estimate(
  group: Group,
  operations: readonly Operation[],
  flows: readonly Flow[],
  storages: Storages,
): { freed: number; inputs: number } {
  const inside = (id: number): boolean => id >= group.start && id < group.end;
  const dropped = storages.holding(group).alone;
  const makers: number[][] = operations.map(() => []);
  const users: number[][] = operations.map(() => []);
  for (const { from, to } of flows) {
    makers[to]?.push(from);
    users[from]?.push(to);
  }
  const isView = (id: number): boolean => VIEW.test(operations[id]?.type ?? '');
  const holds = (id: number, shape: string, result: boolean): boolean => {
    const operation = operations[id];
    return (operation ? storages.of(operation) : []).some(
      (saved) => saved.shape === shape && /^(result0?|output)$/.test(saved.name) === result,
    );
  };
  /** Whether an operation outside holds the output of `base` anyway. */
  const isHeld = (base: number): boolean => {
    const pending = [base];
    for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
      const shape = operations[id]?.shape ?? '';
      if (id === base && !inside(id) && holds(id, shape, true)) return true;
      for (const user of users[id] ?? [])
        if (isView(user)) pending.push(user);
        else if (!inside(user) && holds(user, shape, false)) return true;
    }
    return false;
  };
  const kept = new Set<number>();
  for (const { from, to } of flows) {
    if (inside(from) || !inside(to)) continue;
    let base = from;
    while (isView(base) && makers[base]?.[0] !== undefined) base = makers[base]?.[0] ?? base;
    if (!isHeld(base)) kept.add(base);
  }
  const inputs = [...kept].reduce((sum, id) => sum + (operations[id]?.outputBytes ?? 0), 0);
  return { freed: dropped - inputs, inputs };
}
