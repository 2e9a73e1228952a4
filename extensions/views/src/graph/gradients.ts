/** What backward brought to an operation or a module, read from a record's columns. */
import type { GraphColumns } from './columns';
import type { Group, Item } from './groups';
import { isOperation, type Operation } from './operations';
import { parametersIn } from './parameters';

/** Statistics of one gradient; numbers as in the record's `node_gradient_*` columns. */
export interface Gradient {
  /** L2 norm; NaN or infinite where values are. */
  norm: number;
  largest: number;
  /** Share of zeros, 0 to 1. */
  zeros: number;
  /** Number of NaN and infinite values. */
  nonFinite: number;
}

/** The gradient that reached a row; null where backward did not run or was not watched. */
export function gradientOf(record: GraphColumns, row: number): Gradient | null {
  const nonFinite = Number(record.node_gradient_non_finite[row] ?? -1);
  if (!record.gradients || nonFinite < 0) return null;
  return {
    norm: record.node_gradient_norm[row],
    largest: record.node_gradient_max[row],
    zeros: record.node_gradient_zeros[row],
    nonFinite,
  };
}

/**
 * The operation whose output is an item's: a module's last one, or the compiled one that runs that.
 * What runs inside a compiled one has no output of its own.
 */
export function outputOf(item: Item, operations: readonly Operation[]): Operation | undefined {
  if (isOperation(item)) return item;
  let { end } = item;
  while (operations[end - 1]?.test && end > item.start) end -= 1;
  const last = operations[end - 1];
  if (!last?.host) return last;
  return last.host.id >= item.start ? last.host : undefined;
}

/** The gradient of an item's output. */
export function outputGradient(item: Item, operations: readonly Operation[]): Gradient | null {
  return outputOf(item, operations)?.gradient ?? null;
}

/** L2 norm over the gradients of a module's parameters, each once; null when none got one. */
export function parameterNorm(group: Group, operations: readonly Operation[]): number | null {
  const parameters = parametersIn(operations.slice(group.start, group.end));
  const gradients = parameters.flatMap(({ gradient }) => gradient ?? []);
  if (gradients.length === 0) return null;
  return Math.sqrt(gradients.reduce((sum, { norm }) => sum + norm ** 2, 0));
}

/**
 * Smallest and largest logarithm (base 10) of the finite norms above zero; null without any. The
 * loss is left out: its own gradient is 1 whatever the model does.
 */
export function normRange(operations: readonly Operation[]): [number, number] | null {
  let [low, high] = [Infinity, -Infinity];
  for (const { gradient, loss } of operations) {
    if (!gradient || loss || gradient.nonFinite > 0 || !(gradient.norm > 0)) continue;
    low = Math.min(low, Math.log10(gradient.norm));
    high = Math.max(high, Math.log10(gradient.norm));
  }
  return Number.isFinite(low) && Number.isFinite(high) ? [low, high] : null;
}
