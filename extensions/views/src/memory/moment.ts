/**
 * The allocator at one position: its segments with what is in them, and where the reserved bytes
 * went. Everything follows from the lives of blocks and segments; nothing is kept per event.
 */
import type { LiveBlocks } from './live';
import { roundSize, type Rules } from './rules';
import type { MemoryColumns } from './series';

const SMALL_PAGE = 2 * 2 ** 20;

/** One segment; touching ranges of an expandable segment are one. */
export interface Segment {
  address: number;
  bytes: number;
  stream: number;
  /** In the small pool. */
  small: boolean;
  expandable: boolean;
  /** Number of its private pool, 0 for the default one. */
  pool: number;
  /** Bytes of the blocks in it. */
  used: number;
  /** Bytes of the blocks in it by category. */
  categories: Float64Array;
  /** Its blocks in order of address. */
  blocks: number[];
}

/** Where reserved bytes are, in the order they are drawn; they add up to what is reserved. */
export interface Split {
  requested: number;
  /** Requested bytes by category. */
  categories: Float64Array;
  rounding: number;
  slack: number;
  /** Freed by the program, still used by a stream. */
  waiting: number;
  pinned: number;
  otherStream: number;
  otherPool: number;
  releasable: number;
  reserved: number;
}

export interface Moment {
  position: number;
  segments: Segment[];
  split: Split;
  main: number;
  /** Blocks that are in no segment: the trace is not consistent. */
  lost: number;
  /** The allocator's, by which the split was made. */
  rules: Rules;
}

const NUM_CATEGORIES = 7;

/** The allocator at a position; linear in what lives then. */
export function momentAt(
  record: MemoryColumns,
  live: LiveBlocks,
  position: number,
  rules: Rules,
): Moment {
  live.moveTo(position);
  const segments = segmentsAt(record, position);
  let lost = 0;
  for (let index = 0; index < live.count; index += 1) {
    const block = live.rows[index] ?? 0;
    const segment = find(segments, record.block_address[block] ?? -1);
    if (!segment) {
      lost += 1;
      continue;
    }
    const bytes = record.block_bytes[block] ?? 0;
    const category = record.block_category[block] ?? 0;
    segment.blocks.push(block);
    segment.used += bytes;
    segment.categories[category] = (segment.categories[category] ?? 0) + bytes;
  }
  const address = (block: number): number => record.block_address[block] ?? 0;
  for (const segment of segments)
    if (segment.blocks.length > 1) segment.blocks.sort((a, b) => address(a) - address(b));
  const main = mainStream(record);
  const split = splitOf(record, segments, position, main, rules);
  return { position, segments, split, main, lost, rules };
}

/** Segments there at a position, in order of address. */
function segmentsAt(record: MemoryColumns, position: number): Segment[] {
  const found: Segment[] = [];
  for (let row = 0; row < record.segment_bytes.length; row += 1) {
    const end = record.segment_end[row] ?? -1;
    if ((record.segment_start[row] ?? -1) < position && (end < 0 || end >= position))
      found.push(segmentOf(record, row));
  }
  found.sort((a, b) => a.address - b.address);
  return joined(found);
}

function segmentOf(record: MemoryColumns, row: number): Segment {
  return {
    address: record.segment_address[row] ?? 0,
    bytes: record.segment_bytes[row] ?? 0,
    stream: record.segment_stream[row] ?? 0,
    small: record.segment_pool[row] === 0,
    expandable: record.segment_expandable[row] === 1,
    pool: record.segment_private[row] ?? 0,
    used: 0,
    categories: new Float64Array(NUM_CATEGORIES),
    blocks: [],
  };
}

function joined(segments: Segment[]): Segment[] {
  const found: Segment[] = [];
  for (const segment of segments) {
    const last = found[found.length - 1];
    const touches =
      last?.expandable &&
      segment.expandable &&
      last.address + last.bytes === segment.address &&
      last.stream === segment.stream &&
      last.pool === segment.pool;
    if (!touches) found.push(segment);
    else {
      last.bytes += segment.bytes;
      last.small &&= segment.small;
    }
  }
  return found;
}

/** The segment that holds an address; they are in order. */
export function find(segments: readonly Segment[], address: number): Segment | null {
  let low = 0;
  let high = segments.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const segment = segments[middle] as Segment;
    if (address < segment.address) high = middle - 1;
    else if (address >= segment.address + segment.bytes) low = middle + 1;
    else return segment;
  }
  return null;
}

/** What a block occupies, in parts: requested, rounded up, too small to be split off. */
export function partsOf(
  record: MemoryColumns,
  block: number,
  rules: Rules,
): { requested: number; rounding: number; slack: number } {
  const bytes = record.block_bytes[block] ?? 0;
  const requested = Math.min(record.block_requested[block] ?? 0, bytes);
  const rounded = Math.min(bytes, roundSize(requested, rules));
  return { requested, rounding: rounded - requested, slack: bytes - rounded };
}

/** Whether a block is freed by the program, but still waits for a stream. */
export function isPending(record: MemoryColumns, block: number, position: number): boolean {
  const requested = record.block_pending[block] ?? -1;
  return requested >= 0 && requested < position;
}

function splitOf(
  record: MemoryColumns,
  segments: readonly Segment[],
  position: number,
  main: number,
  rules: Rules,
): Split {
  const categories = new Float64Array(NUM_CATEGORIES);
  const split = {
    requested: 0, categories, rounding: 0, slack: 0, waiting: 0, pinned: 0, otherStream: 0, otherPool: 0,
    releasable: 0, reserved: 0,
  }; // prettier-ignore
  for (const segment of segments) {
    split.reserved += segment.bytes;
    for (const block of segment.blocks) {
      if (isPending(record, block, position)) {
        split.waiting += record.block_bytes[block] ?? 0;
        continue;
      }
      const { requested, rounding, slack } = partsOf(record, block, rules);
      const category = record.block_category[block] ?? 0;
      categories[category] = (categories[category] ?? 0) + requested;
      split.requested += requested;
      split.rounding += rounding;
      split.slack += slack;
    }
    const free = segment.bytes - segment.used;
    const releasable = releasableOf(record, segment, rules);
    split.releasable += releasable;
    if (segment.pool !== 0) split.otherPool += free;
    else if (segment.stream !== main) split.otherStream += free - releasable;
    else split.pinned += free - releasable;
  }
  return split;
}

/** The stream to which most of the default pool belongs, over the whole recording. */
function mainStream(record: MemoryColumns): number {
  const bytes = new Map<number, number>();
  for (let row = 0; row < record.segment_bytes.length; row += 1) {
    if (record.segment_private[row] !== 0) continue;
    const stream = record.segment_stream[row] ?? 0;
    bytes.set(stream, (bytes.get(stream) ?? 0) + (record.segment_bytes[row] ?? 0));
  }
  let main = 0;
  for (const [stream, size] of [...bytes].sort((a, b) => a[0] - b[0]))
    if (size > (bytes.get(main) ?? -1)) main = stream;
  return main;
}

/** Whether `empty_cache()` would give a segment back; a private pool keeps its own while it lives. */
export function isReleasable({ used, pool }: Segment): boolean {
  return used === 0 && pool === 0;
}

/** Bytes an `empty_cache()` would give back: an empty segment, or the empty pages of an expandable one. */
export function releasableOf(record: MemoryColumns, segment: Segment, rules: Rules): number {
  if (segment.pool !== 0) return 0;
  if (segment.blocks.length === 0) return segment.bytes;
  if (!segment.expandable) return 0;
  const page = segment.small ? SMALL_PAGE : rules.largePage;
  let sum = 0;
  for (const [from, to] of holesOf(record, segment))
    sum += Math.max(0, Math.floor(to / page) - Math.ceil(from / page)) * page;
  return sum;
}

/** Free ranges of a segment, as offsets [from, to). */
export function holesOf(record: MemoryColumns, segment: Segment): [number, number][] {
  const holes: [number, number][] = [];
  let at = 0;
  for (const block of segment.blocks) {
    const start = (record.block_address[block] ?? 0) - segment.address;
    if (start > at) holes.push([at, start]);
    at = Math.max(at, start + (record.block_bytes[block] ?? 0));
  }
  if (at < segment.bytes) holes.push([at, segment.bytes]);
  return holes;
}

/** The segment most worth a closer look: partly free, large, and with many blocks. */
export function mostBroken(segments: readonly Segment[]): Segment | null {
  const holes = segments.filter(({ used, bytes }) => used > 0 && used < bytes);
  const weight = ({ blocks, bytes }: Segment): number => blocks.length * bytes;
  let best: Segment | null = null;
  for (const segment of holes.length > 0 ? holes : segments)
    if (!best || weight(segment) > weight(best)) best = segment;
  return best;
}
