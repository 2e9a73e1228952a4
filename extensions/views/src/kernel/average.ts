import type { Curve } from './model';

/** Weight of the newest value. */
const WEIGHT = 0.12;

/** How far a moving average has come. */
export interface Average {
  /** Of the weighted values. */
  readonly sum: number;
  /** What their weights add up to; 0 before the first. */
  readonly weight: number;
}

export const NO_AVERAGE: Average = { sum: 0, weight: 0 };

/**
 * Writes the exponential moving average of a curve at every point from `start` on, and gives how far
 * it has come. It has no bias towards its start: the weights of the values seen so far add up to one.
 * Non-finite values are passed over. `panel/channel/thinning.py` computes the same.
 */
export function average(before: Average, curve: Curve, start: number): Average {
  let { sum, weight } = before;
  for (let at = start; at < curve.length; at += 1) {
    const value = curve.values[at] as number;
    if (Number.isFinite(value)) {
      sum += (value - sum) * WEIGHT;
      weight += (1 - weight) * WEIGHT;
    }
    curve.smooth[at] = weight > 0 ? sum / weight : NaN;
  }
  return { sum, weight };
}
