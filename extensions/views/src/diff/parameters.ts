/** The parameters of a box of a diff, by what became of them. */
import type { Item } from '../graph/groups';
import { stateOf, type DiffState as State } from './change';
import type { DiffState } from './state';

/** How many are the same in both, in A only, in B only, and changed; each is counted once. */
export function parametersOf(state: DiffState, within: Item): Record<State, number> {
  const found: Record<State, number> = { same: 0, removed: 0, added: 0, changed: 0 };
  const [start, end] =
    within.kind === 'operation' ? [within.id, within.id + 1] : [within.start, within.end];
  const seen = new Set<number>();
  for (const { leaves } of state.operations.slice(start, end))
    for (const { row, input } of leaves) {
      if (input || seen.has(row)) continue;
      seen.add(row);
      found[stateOf(state.diff, row)] += 1;
    }
  return found;
}
