/** What would have served a refused request: free memory, and the blocks between it, to scale. */
import { find, type Moment, type Segment } from './moment';
import type { MemoryColumns } from './series';

/** Memory side by side that is all free, or all of blocks of one category. */
export interface Part {
  /** -1: free. */
  category: number;
  bytes: number;
}

export interface Room {
  parts: Part[];
  /** Their bytes; of pages of an expandable segment not all of them may go back. */
  bytes: number;
  /** Whether segments go back to the driver, which then serves the request with a new one. */
  emptied: boolean;
  /** Whether `bytes` is exact. */
  exact: boolean;
}

/**
 * The room that a request finds once its obstacles are freed: a run of neighbours in one segment, or
 * what the device has left with the segments that are then empty.
 */
export function roomOf(
  record: MemoryColumns,
  moment: Moment,
  row: number,
  obstacles: readonly number[],
): Room | null {
  const inSegments = new Map<Segment, Set<number>>();
  for (const block of obstacles) {
    const segment = find(moment.segments, record.block_address[block] ?? -1);
    if (!segment) return null;
    const found = inSegments.get(segment) ?? new Set();
    inSegments.set(segment, found.add(block));
  }
  const runs = [...inSegments].map(([segment, blocks]) => runOf(record, segment, blocks));
  const sum = (parts: readonly Part[]): number => parts.reduce((all, { bytes }) => all + bytes, 0);
  const [only = []] = runs;
  if (runs.length === 0) return null;
  if (runs.length === 1 && sum(only) >= (record.oom_bytes[row] ?? 0))
    return { parts: only, bytes: sum(only), emptied: false, exact: true };
  const free = { category: -1, bytes: Math.max(0, record.oom_free[row] ?? 0) };
  const parts = [...runs.flat(), free].filter(({ bytes }) => bytes > 0);
  const exact = [...inSegments.keys()].every(({ expandable }) => !expandable);
  return { parts, bytes: sum(parts), emptied: true, exact };
}

/** Blocks of a segment with the free memory about and between them, up to their neighbours. */
function runOf(record: MemoryColumns, segment: Segment, freed: ReadonlySet<number>): Part[] {
  const parts: Part[] = [];
  const add = (category: number, bytes: number): void => {
    const last = parts[parts.length - 1];
    if (last?.category === category) last.bytes += bytes;
    else if (bytes > 0) parts.push({ category, bytes });
  };
  let at = segment.address;
  let seen = 0;
  for (const block of segment.blocks) {
    const address = record.block_address[block] ?? 0;
    const end = address + (record.block_bytes[block] ?? 0);
    if (!freed.has(block) && seen === freed.size) {
      add(-1, address - at);
      return parts;
    }
    if (!freed.has(block)) parts.length = 0;
    else {
      add(-1, address - at);
      add(record.block_category[block] ?? 6, end - address);
      seen += 1;
    }
    at = end;
  }
  add(-1, segment.address + segment.bytes - at);
  return parts;
}
