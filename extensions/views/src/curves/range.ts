import type { Curve } from '../kernel';

/** Values among which the percentiles are looked for. */
const SAMPLE = 1000;

export interface Range {
  readonly low: number;
  readonly high: number;
}

/**
 * The range to draw: every value of the moving average and of the others, and all of the raw ones
 * but the worst two per cent. Null where nothing is finite.
 */
export function valueRange(
  train: Curve | undefined,
  others: readonly (Curve | undefined)[],
): Range | null {
  const all = [train && { values: train.smooth, length: train.length }, ...others];
  let [low, high] = [Infinity, -Infinity];
  const include = (value: number): void => {
    if (!Number.isFinite(value)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  for (const one of all) {
    for (let at = 0; one && at < one.length; at += 1) include(one.values[at] as number);
  }
  for (const value of train ? percentiles(train) : []) include(value);
  return low <= high ? { low, high } : null;
}

/** The 1st and the 99th of the finite values, of an even sample of many. */
function percentiles({ values, length }: Curve): number[] {
  const stride = Math.max(1, Math.floor(length / SAMPLE));
  const sample: number[] = [];
  for (let at = 0; at < length; at += stride) {
    const value = values[at] as number;
    if (Number.isFinite(value)) sample.push(value);
  }
  sample.sort((a, b) => a - b);
  const at = (fraction: number): number =>
    sample[Math.round(fraction * (sample.length - 1))] ?? NaN;
  return [at(0.01), at(0.99)];
}
