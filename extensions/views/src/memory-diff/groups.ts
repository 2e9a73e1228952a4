/** Bytes of groups of blocks at both peaks, and how they differ: twin of `MemoryDiff.by`. */
import { isLive, type MemoryColumns } from '../memory/series';
import type { Naming } from './naming';

/** One group of blocks at both peaks. */
export interface Change {
  what: string;
  /** Bytes at A's peak. */
  before: number;
  /** Bytes at B's peak. */
  after: number;
  blocksBefore: number;
  blocksAfter: number;
  /** Bytes by which B has more. */
  change: number;
}

/** The blocks that live at the peak of a recording. */
export function blocksAtPeak(record: MemoryColumns): number[] {
  const position = record.peak_event + 1;
  const found: number[] = [];
  for (let block = 0; block < record.block_start.length; block += 1)
    if (isLive(record, block, position)) found.push(block);
  return found;
}

interface Held {
  bytes: number;
  blocks: number;
}

function held(record: MemoryColumns, blocks: readonly number[], naming: Naming): Map<string, Held> {
  const found = new Map<string, Held>();
  for (const block of blocks) {
    const name = naming(block);
    const group = found.get(name) ?? { bytes: 0, blocks: 0 };
    group.bytes += record.block_bytes[block] ?? 0;
    group.blocks += 1;
    found.set(name, group);
  }
  return found;
}

/** Blocks of one recording, and what they are called. */
export interface Named {
  record: MemoryColumns;
  blocks: readonly number[];
  naming: Naming;
}

/** Every group, the largest change first; their changes add up to that of the bytes. */
export function changesOf(a: Named, b: Named): Change[] {
  const before = held(a.record, a.blocks, a.naming);
  const after = held(b.record, b.blocks, b.naming);
  const rows: Change[] = [];
  for (const what of new Set([...before.keys(), ...after.keys()])) {
    const [first, last] = [before.get(what), after.get(what)];
    rows.push({
      what,
      before: first?.bytes ?? 0,
      after: last?.bytes ?? 0,
      blocksBefore: first?.blocks ?? 0,
      blocksAfter: last?.blocks ?? 0,
      change: (last?.bytes ?? 0) - (first?.bytes ?? 0),
    });
  }
  return rows.sort((x, y) => Math.abs(y.change) - Math.abs(x.change) || (x.what < y.what ? -1 : 1));
}
