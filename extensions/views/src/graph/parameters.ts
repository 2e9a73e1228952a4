/** The parameters behind some operations. */
import type { Leaf, Operation } from './operations';

/** Each once: distinguished by row, as those of a capture without a model have no names. */
export function parametersIn(operations: readonly Operation[]): Leaf[] {
  const leaves = operations.flatMap((one) => one.leaves.filter(({ input }) => !input));
  return [...new Map(leaves.map((leaf) => [leaf.row, leaf])).values()];
}
