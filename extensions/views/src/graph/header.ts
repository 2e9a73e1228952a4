/** Where the text of an open box's header goes: beside the lines that come in through it. */
import type { Line } from './layout';

/** Free on both sides of a line's middle; the widest line is 11 wide. */
const CLEAR = 10;

/** x of every line that crosses the header of a box whose top is at `top`. */
export function crossings(lines: readonly Line[], top: number): number[] {
  return lines.flatMap(({ points }) => (points[1] === top ? [points[0] ?? 0] : []));
}

/**
 * Right end of the rightmost range between `left` and `right` that has `room` for text and is
 * crossed by no line; null where there is none.
 */
export function gapBefore(
  crossed: readonly number[],
  left: number,
  right: number,
  room: number,
): number | null {
  let end = right;
  for (const x of [...crossed].sort((a, b) => b - a)) {
    if (end - Math.max(left, x + CLEAR) >= room) return end;
    end = Math.min(end, x - CLEAR);
  }
  return end - left >= room ? end : null;
}

/** Right end of a header that has `room` to the right of every line that crosses it. */
export function endBeside(crossed: readonly number[], room: number): number {
  return Math.max(...crossed) + CLEAR + room;
}
