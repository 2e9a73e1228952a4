import type { Curve } from '../kernel';

/** The first point at `step` or behind it. */
export function pointAt(curve: Curve, step: number): number {
  let low = 0;
  let high = curve.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((curve.steps[middle] as number) < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The point nearest to a step; −1 where there is none. */
export function nearest(curve: Curve, step: number): number {
  const after = pointAt(curve, step);
  if (after === 0 || curve.length === 0) return Math.min(after, curve.length - 1);
  if (after === curve.length) return curve.length - 1;
  const before = step - (curve.steps[after - 1] as number);
  return before < (curve.steps[after] as number) - step ? after - 1 : after;
}

/** The last point at `step` or before it; −1 where there is none. */
export function lastUntil(curve: Curve, step: number): number {
  return pointAt(curve, step + 1) - 1;
}

/** The points between two steps, and one more on each side, so that a line goes to the edge. */
export function between(curve: Curve, from: number, to: number): Curve {
  const start = Math.max(0, pointAt(curve, from) - 1);
  const end = Math.min(curve.length, pointAt(curve, to + 1) + 1);
  return {
    steps: curve.steps.subarray(start, end),
    values: curve.values.subarray(start, end),
    smooth: curve.smooth.subarray(start, end),
    length: end - start,
  };
}

/** A curve for a logarithmic axis, on which what is not above zero has no place. */
export function above(curve: Curve): Curve {
  const kept = (values: Float32Array): Float32Array =>
    values.map((value) => (value > 0 ? value : NaN));
  return { ...curve, values: kept(curve.values), smooth: kept(curve.smooth) };
}
