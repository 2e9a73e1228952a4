/** Where every segment's strip lies: grouped by size, several to a row, bytes to scale. */
import type { MemoryColumns } from './series';

export const STRIP = 12;
const PITCH = 15;
const GROUP_GAP = 6;
const GAP = 3;
const LABEL = 148;
const MARGIN = 16;
/** A small-pool segment is at least this wide; its group says by how much it is stretched. */
const SMALL_WIDTH = 56;
/** More strips than this tell nothing more; the largest are kept. */
export const MOST_STRIPS = 2000;

export interface Strip {
  segment: number;
  x: number;
  y: number;
  width: number;
  /** Pixels per byte. */
  scale: number;
}

export interface StripGroup {
  bytes: number;
  small: boolean;
  count: number;
  /** How much wider than the scale of the drawing, 1 for none. */
  stretch: number;
  y: number;
}

export interface Strips {
  strips: Strip[];
  groups: StripGroup[];
  height: number;
}

/** Places the strips in `width` pixels. */
export function placeStrips(record: MemoryColumns, width: number): Strips {
  const bytesOf = (segment: number): number => record.segment_bytes[segment] ?? 0;
  const small = (segment: number): boolean => record.segment_pool[segment] === 0;
  const order = Array.from({ length: record.segment_bytes.length }, (_, segment) => segment)
    .sort((a, b) => bytesOf(b) - bytesOf(a) || Number(small(a)) - Number(small(b)) || a - b)
    .slice(0, MOST_STRIPS);
  const room = Math.max(60, width - LABEL - MARGIN);
  const scale = room / Math.max(1, bytesOf(order[0] ?? 0));
  const strips: Strip[] = [];
  const groups: StripGroup[] = [];
  let group: StripGroup | undefined;
  let x = 0;
  let y = 2 - PITCH - GROUP_GAP;
  for (const segment of order) {
    const bytes = bytesOf(segment);
    if (group?.bytes !== bytes || group.small !== small(segment)) {
      const natural = bytes * scale;
      const stretch = small(segment) && natural < SMALL_WIDTH ? SMALL_WIDTH / natural : 1;
      y += PITCH + GROUP_GAP;
      x = 0;
      group = { bytes, small: small(segment), count: 0, stretch, y };
      groups.push(group);
    }
    const own = Math.max(2, bytes * scale * group.stretch);
    if (x > 0 && x + own > room + 0.5) {
      x = 0;
      y += PITCH;
    }
    group.count += 1;
    strips.push({ segment, x: LABEL + x, y, width: own, scale: own / Math.max(1, bytes) });
    x += own + GAP;
  }
  return { strips, groups, height: Math.max(0, y) + PITCH + 4 };
}

/** x at which the strips begin; labels end before it. */
export const STRIPS_LEFT = LABEL;
