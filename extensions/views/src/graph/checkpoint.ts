/** What activation checkpointing of a module would free, estimated from one record. */
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
  if (group.kind === 'module') return [group];
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

function estimate(
  group: Group,
  operations: readonly Operation[],
  flows: readonly Flow[],
  storages: Storages,
): { freed: number; inputs: number } {
  const inside = (id: number): boolean => id >= group.start && id < group.end;
  const alone = storages
    .distinct(group)
    .filter(({ storage, kind }) => kind === 'activation' && isInside(storages, storage, inside));
  // An input is saved by its first user under the shape with which it came in.
  const incoming = flows.filter(({ from, to }) => inside(to) && !inside(from));
  const kept = new Set<number>();
  const sources = new Map(incoming.map(({ from, to }) => [from, to]));
  for (const [from, to] of sources) {
    const [maker, user] = [operations[from], operations[to]];
    if (!maker || !user) continue;
    const input = storages
      .of(user)
      .find(
        ({ storage, shape, name }) =>
          !kept.has(storage) && shape === maker.shape && !/^(result|out)/.test(name),
      );
    if (input) kept.add(input.storage);
  }
  let [freed, inputs] = [0, 0];
  for (const { storage, bytes } of alone)
    if (kept.has(storage)) inputs += bytes;
    else freed += bytes;
  return { freed, inputs };
}

function isInside(storages: Storages, storage: number, inside: (id: number) => boolean): boolean {
  return storages.holdersOf(storage).every(({ id }) => inside(id));
}
