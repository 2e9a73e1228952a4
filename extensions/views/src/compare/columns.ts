/** The figures of a variant: how each is worded, sorted by, and explained. */
import type { ComparedArm } from '@torch-workbench/records';
import { duration, graphs, known, mebibytes, NONE, paysBack, power, share } from './words';

export interface Column {
  readonly name: string;
  readonly title: string;
  /** What rows are sorted by; NaN for what is not known, which always comes last. */
  readonly value: (variant: ComparedArm) => number | string;
  readonly text: (variant: ComparedArm) => string;
}

export const MODES: Column = {
  name: 'Modes',
  title: 'The first of a model is its baseline',
  value: ({ modes }) => modes,
  text: ({ modes }) => modes,
};

export const SPEED: Column = {
  name: 'Speed',
  title: 'Against the baseline, the middle of the rounds’ ratios, with its 99 % interval',
  value: ({ speedup }) => speedup,
  text: () => '',
};

export const STEP: Column = {
  name: 'Step',
  title: 'Median of the blocks’ medians, and their quartiles',
  value: ({ step_s: time }) => time,
  text: ({ step_s: time }) => duration(time),
};

/** A count that was not taken is -1. */
function taken(count: number): number {
  return count < 0 ? NaN : count;
}

export const REST: readonly Column[] = [
  {
    name: 'Samples/s',
    title: 'Samples trained on in a second',
    value: ({ samples_per_s: rate }) => rate,
    text: ({ samples_per_s: rate }) => known(rate),
  },
  {
    name: 'First step',
    title: 'The very first step: compiling, and making the optimizer’s state',
    value: ({ first_step_s: time }) => time,
    text: ({ first_step_s: time }) => duration(time),
  },
  {
    name: 'Pays back',
    title: 'After how many steps a longer first step is made up for',
    value: (variant) =>
      paysBack(variant) === NONE ? NaN : variant.break_even < 0 ? Infinity : variant.break_even,
    text: paysBack,
  },
  {
    name: 'Memory',
    title: 'The most torch allocated on GPUs; on a CPU by how much the process grew; of all ranks',
    value: ({ peak_bytes: bytes }) => bytes,
    text: ({ peak_bytes: bytes }) => mebibytes(bytes),
  },
  {
    name: 'Launches',
    title: 'Kernels that a step launches on a GPU; on a CPU the ATen operations that it calls',
    value: ({ operations }) => taken(operations),
    text: ({ operations }) => known(operations),
  },
  {
    name: 'Graphs',
    title: 'Compiled graphs, and graph breaks',
    value: ({ graphs: count }) => (count > 0 ? count : NaN),
    text: graphs,
  },
  {
    name: 'Max |Δ logit|',
    title: 'Largest difference of a logit from the baseline’s, with the weights at the start',
    value: ({ delta_logit: delta }) => delta,
    text: ({ delta_logit: delta }) => power(delta),
  },
  {
    name: 'Same answer',
    title: 'Share of samples for which the largest logit is that of the baseline',
    value: ({ agreement }) => agreement,
    text: ({ agreement }) => share(agreement),
  },
  {
    name: 'Δ loss',
    title: 'Largest relative difference of a training loss from the baseline’s',
    value: ({ delta_loss: delta }) => delta,
    text: ({ delta_loss: delta }) => power(delta),
  },
];

export type Order = 'ascending' | 'descending';

/** Rows by a column; those whose figure is not known stay last, whichever way. */
export function sorted<R>(
  rows: readonly R[],
  value: (row: R) => number | string,
  order: Order,
): R[] {
  const sign = order === 'ascending' ? 1 : -1;
  const missing = (one: number | string): boolean => Number.isNaN(one);
  return [...rows].sort((first, second) => {
    const [a, b] = [value(first), value(second)];
    if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
    return sign * (a < b ? -1 : a > b ? 1 : 0);
  });
}
