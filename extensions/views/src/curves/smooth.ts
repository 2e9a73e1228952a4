import type { Curve } from '../kernel';

/** Weight of the newest value in the moving average. */
const WEIGHT = 0.12;

/**
 * Exponential moving average without the bias towards its start: the weights of the values seen so
 * far always add up to one. Non-finite values are passed over.
 */
export function smoothed(curve: Curve): Float32Array {
  const out = new Float32Array(curve.length);
  let sum = 0;
  let weight = 0;
  for (let i = 0; i < curve.length; i += 1) {
    const value = curve.values[i] as number;
    if (Number.isFinite(value)) {
      sum += (value - sum) * WEIGHT;
      weight += (1 - weight) * WEIGHT;
    }
    out[i] = weight > 0 ? sum / weight : NaN;
  }
  return out;
}

/** The range to draw: every smoothed value, and all of the raw ones but the worst two per cent. */
export function valueRange(
  raw: Curve | undefined,
  smooth: Float32Array,
  others: readonly (Curve | undefined)[],
): { low: number; high: number } | null {
  const seen: number[] = [];
  collect(smooth, smooth.length, seen);
  for (const other of others) if (other) collect(other.values, other.length, seen);
  if (raw) {
    const sample: number[] = [];
    collect(raw.values, raw.length, sample);
    sample.sort((a, b) => a - b);
    const at = (fraction: number): number =>
      sample[Math.round(fraction * (sample.length - 1))] as number;
    if (sample.length > 0) seen.push(at(0.01), at(0.99));
  }
  if (seen.length === 0) return null;
  let low = Infinity;
  let high = -Infinity;
  for (const value of seen) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return { low, high };
}

/** At most about a thousand finite values, evenly taken: enough to find a range. */
function collect(values: Float32Array, length: number, into: number[]): void {
  const stride = Math.max(1, Math.floor(length / 1000));
  for (let i = 0; i < length; i += stride) {
    const value = values[i] as number;
    if (Number.isFinite(value)) into.push(value);
  }
  const last = values[length - 1];
  if (last !== undefined && Number.isFinite(last)) into.push(last);
}
