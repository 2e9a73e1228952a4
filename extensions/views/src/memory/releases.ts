/** When the allocator gave segments back to the driver: `empty_cache()`, or before a retry. */
import { KIND, type MemoryColumns } from './series';

/** Segments that were given back with nothing but such events between them. */
export interface Release {
  first: number;
  last: number;
  count: number;
  bytes: number;
}

export function releasesOf(record: MemoryColumns): Release[] {
  const ended = Array.from({ length: record.segment_bytes.length }, (_, row) => row)
    .filter((row) => (record.segment_end[row] ?? -1) >= 0)
    .sort((a, b) => (record.segment_end[a] ?? 0) - (record.segment_end[b] ?? 0));
  const found: Release[] = [];
  for (const row of ended) {
    const event = record.segment_end[row] ?? 0;
    const bytes = record.segment_bytes[row] ?? 0;
    const current = found[found.length - 1];
    if (current && onlyReleases(record, current.last + 1, event)) {
      current.last = event;
      current.count += 1;
      current.bytes += bytes;
    } else found.push({ first: event, last: event, count: 1, bytes });
  }
  return found;
}

function onlyReleases(record: MemoryColumns, from: number, to: number): boolean {
  for (let event = from; event < to; event += 1) {
    const kind = record.event_kind[event] ?? KIND.alloc;
    // The frees that synchronising streams completes come in between.
    if (kind < KIND.free || kind === KIND.segmentAlloc) return false;
  }
  return true;
}
