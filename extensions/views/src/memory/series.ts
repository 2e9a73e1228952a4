/**
 * Live bytes over time. *Position* k is the moment after k events: position 0 is before the first
 * event, and a block is live from the position after its allocation up to the event that frees it.
 */
import type { MemoryRecord } from '@torch-workbench/records';

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

type Column = Int32Array | Float64Array | Float32Array | Uint8Array;

/** A `MemoryRecord`, whatever holds its columns. */
export type MemoryColumns = {
  readonly [Name in Exclude<keyof MemoryRecord, 'schema'>]: MemoryRecord[Name] extends Column
    ? ArrayLike<number>
    : MemoryRecord[Name];
};

/** What an event was, as in `workbench/records/memory.py`. */
export const KIND = { alloc: 0, requested: 1, free: 2, segmentAlloc: 3, segmentFree: 4 } as const;

export interface Series {
  /** Number of positions: events + 1. */
  length: number;
  /** Live bytes of each category at each position; null for a category that never occurs. */
  live: (Float64Array | null)[];
  total: Float64Array;
  /** Bytes of all segments at each position; null where there are none. */
  reserved: Float64Array | null;
  most: number;
}

/**
 * Live bytes by category at every position, of the blocks that `fits` lets through; linear in
 * blocks and events.
 */
export function readSeries(record: MemoryColumns, fits?: (block: number) => boolean): Series {
  const length = record.event_time_us.length + 1;
  const live = CATEGORIES.map((): Float64Array | null => null);
  for (let block = 0; block < record.block_start.length; block += 1) {
    if (fits && !fits(block)) continue;
    const category = record.block_category[block] ?? 0;
    const values = (live[category] ??= new Float64Array(length));
    const start = record.block_start[block] ?? -1;
    add(values, start, record.block_end[block] ?? -1, record.block_bytes[block] ?? 0);
  }
  const total = new Float64Array(length);
  for (const values of live) {
    if (!values) continue;
    accumulate(values);
    for (let at = 0; at < length; at += 1) total[at] = (total[at] ?? 0) + (values[at] ?? 0);
  }
  let most = 0;
  for (const value of total) most = Math.max(most, value);
  return { length, live, total, reserved: readReserved(record, length), most };
}

function readReserved(record: MemoryColumns, length: number): Float64Array | null {
  if (record.segment_bytes.length === 0) return null;
  const values = new Float64Array(length);
  for (let row = 0; row < record.segment_bytes.length; row += 1) {
    const start = record.segment_start[row] ?? -1;
    add(values, start, record.segment_end[row] ?? -1, record.segment_bytes[row] ?? 0);
  }
  accumulate(values);
  return values;
}

/** Adds a life to differences: its bytes appear after `start` and vanish after `end`. */
function add(values: Float64Array, start: number, end: number, bytes: number): void {
  if (start + 1 >= values.length) return;
  values[start + 1] = (values[start + 1] ?? 0) + bytes;
  if (end >= 0 && end + 1 < values.length) values[end + 1] = (values[end + 1] ?? 0) - bytes;
}

function accumulate(values: Float64Array): void {
  let sum = 0;
  for (let at = 0; at < values.length; at += 1) {
    sum += values[at] ?? 0;
    values[at] = sum;
  }
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
