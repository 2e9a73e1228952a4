/**
 * Live bytes over time. *Position* k is the moment after k events: position 0 is before the first
 * event, and a block is live from the position after its allocation up to the event that frees it.
 */
import type { SourceText } from '../graph/operations';

/** Stacking order from the bottom, as in `workbench/records/memory.py`. */
export const CATEGORIES = [
  'parameters',
  'optimizer',
  'buffers',
  'gradients',
  'activations',
  'temporaries',
  'unknown',
] as const;

/** What a category is called on screen. */
export function categoryLabel(category: number): string {
  const name = CATEGORIES[category] ?? 'unknown';
  return name === 'buffers' ? 'buffers + inputs' : name;
}

type Numbers = ArrayLike<number>;

/** The columns of a `MemoryRecord` that the view reads. */
export interface MemoryColumns {
  readonly title: string;
  readonly step: number | null;
  readonly device: string;
  readonly basis: string;
  readonly torch_version: string;
  readonly notes: readonly string[];
  readonly strings: readonly string[];
  readonly sources: readonly SourceText[];
  readonly phases: readonly {
    readonly name: string;
    readonly start: number;
    readonly end: number;
  }[];
  readonly event_time_us: Numbers;
  readonly block_start: Numbers;
  readonly block_end: Numbers;
  readonly block_bytes: Numbers;
  readonly block_category: Numbers;
  readonly block_op: Numbers;
  readonly block_name: Numbers;
  readonly block_module: Numbers;
  readonly block_source: Numbers;
  readonly block_address: Numbers;
  readonly peak_event: number;
  readonly peak_bytes: number;
  readonly reserved_bytes: number;
  readonly segment_address: Numbers;
  readonly segment_bytes: Numbers;
  readonly segment_stream: Numbers;
  readonly segment_pool: Numbers;
  readonly segment_block_segment: Numbers;
  readonly segment_block_offset: Numbers;
  readonly segment_block_bytes: Numbers;
  readonly segment_block_state: Numbers;
  readonly segment_block_category: Numbers;
}

export interface Series {
  /** Number of positions: events + 1. */
  length: number;
  /** Live bytes of each category at each position. */
  live: Float64Array[];
  total: Float64Array;
  most: number;
}

/** Live bytes by category at every position; linear in blocks and events. */
export function readSeries(record: MemoryColumns): Series {
  const length = record.event_time_us.length + 1;
  const live = CATEGORIES.map(() => new Float64Array(length));
  for (let block = 0; block < record.block_start.length; block += 1) {
    const category = live[record.block_category[block] ?? 0];
    const bytes = record.block_bytes[block] ?? 0;
    const start = (record.block_start[block] ?? -1) + 1;
    const end = record.block_end[block] ?? -1;
    if (!category || start >= length) continue;
    category[start] = (category[start] ?? 0) + bytes;
    if (end >= 0 && end + 1 < length) category[end + 1] = (category[end + 1] ?? 0) - bytes;
  }
  const total = new Float64Array(length);
  let most = 0;
  for (const values of live) {
    let sum = 0;
    for (let at = 0; at < length; at += 1) {
      sum += values[at] ?? 0;
      values[at] = sum;
      total[at] = (total[at] ?? 0) + sum;
    }
  }
  for (const value of total) most = Math.max(most, value);
  return { length, live, total, most };
}

/**
 * For every pixel column of [from, to] the position whose total is largest, so a peak of a single
 * event is never lost however many events share a pixel.
 */
export function reduce(series: Series, from: number, to: number, columns: number): Int32Array {
  const result = new Int32Array(columns);
  const span = (to - from) / columns;
  for (let column = 0; column < columns; column += 1) {
    const first = Math.max(0, Math.floor(from + column * span));
    const last = Math.min(
      series.length - 1,
      Math.max(first, Math.ceil(from + (column + 1) * span) - 1),
    );
    let best = Math.min(first, series.length - 1);
    for (let at = first; at <= last; at += 1)
      if ((series.total[at] ?? 0) > (series.total[best] ?? 0)) best = at;
    result[column] = best;
  }
  return result;
}

/** Whether a block is live at a position. */
export function isLive(record: MemoryColumns, block: number, position: number): boolean {
  const end = record.block_end[block] ?? -1;
  return (record.block_start[block] ?? -1) < position && (end < 0 || end >= position);
}

/** Milliseconds since recording began at a position. */
export function timeAt(record: MemoryColumns, position: number): number {
  if (record.event_time_us.length === 0) return 0;
  const event = Math.min(Math.max(0, position - 1), record.event_time_us.length - 1);
  return Number(record.event_time_us[event]) / 1000;
}

/** The phase an event belongs to, empty outside all of them. */
export function phaseAt(record: MemoryColumns, event: number): string {
  return record.phases.find(({ start, end }) => event >= start && event < end)?.name ?? '';
}
