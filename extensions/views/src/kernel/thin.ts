/**
 * Fewer points of a long curve, without losing what a person looks for in it: `panel/channel/thinning.py`
 * does the same where a curve is sent whole.
 */
import type { Curve } from './model';

/** Of each bucket, at most: its lowest, its highest, and the first that is not finite. */
const KEPT = 3;

/** Which of `values` to keep, in their order: `most` at most, the first and the last among them. */
export function keptRows(values: ArrayLike<number>, length: number, most: number): number[] {
  if (length <= most) return Array.from({ length }, (_, row) => row);
  const width = Math.ceil(length / Math.max(1, Math.floor((most - 2) / KEPT)));
  const rows: number[] = [0];
  let last = 0;
  const keep = (row: number): void => {
    if (row > last) rows.push((last = row));
  };
  for (let start = 0; start < length; start += width) {
    let [low, high, odd] = [-1, -1, -1];
    const end = Math.min(start + width, length);
    for (let row = start; row < end; row += 1) {
      const value = values[row] as number;
      if (!Number.isFinite(value)) {
        if (odd < 0) odd = row;
        continue;
      }
      if (low < 0 || value < (values[low] as number)) low = row;
      if (high < 0 || value > (values[high] as number)) high = row;
    }
    const [first, third] = [Math.min(low, high, odd), Math.max(low, high, odd)];
    keep(first);
    keep(low + high + odd - first - third);
    keep(third);
  }
  keep(length - 1);
  return rows;
}

/** At most so many points of a curve; its moving average is that of all points. */
export function thin(curve: Curve, most: number): Curve {
  if (curve.length <= most) return curve;
  const rows = keptRows(curve.values, curve.length, most);
  const take = (from: Float32Array): Float32Array =>
    Float32Array.from(rows, (row) => from[row] as number);
  return {
    steps: Int32Array.from(rows, (row) => curve.steps[row] as number),
    values: take(curve.values),
    smooth: take(curve.smooth),
    length: rows.length,
  };
}

/** Of memory the newest points alone are drawn, side by side: its columns stay of equal length. */
export function isOfMemory(name: string): boolean {
  return name.startsWith('memory/');
}
