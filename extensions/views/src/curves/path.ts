import type { Scale } from './scale';

/**
 * An SVG path through (steps, values). A column of pixels gets at most its first, lowest, highest
 * and last point, so that a million steps draw as fast as a thousand and no spike is lost.
 * Non-finite values interrupt the line.
 */
export function linePath(
  steps: Int32Array,
  values: Float32Array,
  length: number,
  x: Scale,
  y: Scale,
): string {
  const out: string[] = [];
  let pen = false;
  let i = 0;
  while (i < length) {
    const value = values[i] as number;
    if (!Number.isFinite(value)) {
      pen = false;
      i += 1;
      continue;
    }
    const column = Math.floor(x(steps[i] as number));
    let end = i + 1;
    let low = i;
    let high = i;
    while (end < length && Math.floor(x(steps[end] as number)) === column) {
      const next = values[end] as number;
      if (!Number.isFinite(next)) break;
      if (next < (values[low] as number)) low = end;
      if (next > (values[high] as number)) high = end;
      end += 1;
    }
    for (const at of new Set([i, Math.min(low, high), Math.max(low, high), end - 1])) {
      const command = pen ? 'L' : 'M';
      pen = true;
      out.push(
        `${command}${x(steps[at] as number).toFixed(1)} ${y(values[at] as number).toFixed(1)}`,
      );
    }
    i = end;
  }
  return out.join('');
}
