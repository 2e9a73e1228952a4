/** Blocks at a moment: who holds memory, the largest first, and what a block is called. */
import { sourceLabel } from '../graph/dom';
import type { LiveBlocks } from './live';
import { CATEGORIES, phaseAt, type MemoryColumns } from './series';

export interface Holders {
  /** Blocks, largest first, at most as many as requested. */
  blocks: number[];
  count: number;
  bytes: number;
}

/** The blocks live at a position that pass the filter. */
export function holdersAt(
  record: MemoryColumns,
  live: LiveBlocks,
  position: number,
  fits: (block: number) => boolean,
  most: number,
): Holders {
  live.moveTo(position);
  const size = (block: number): number => record.block_bytes[block] ?? 0;
  let blocks: number[] = [];
  let count = 0;
  let bytes = 0;
  let least = -1;
  for (let index = 0; index < live.count; index += 1) {
    const block = live.rows[index] ?? 0;
    if (!fits(block)) continue;
    count += 1;
    bytes += size(block);
    // Only what can still be among the largest is kept and, now and then, put in order.
    if (size(block) < least) continue;
    blocks.push(block);
    if (blocks.length < 4 * most) continue;
    blocks = largest(blocks, size, most);
    least = size(blocks[blocks.length - 1] ?? 0);
  }
  return { blocks: largest(blocks, size, most), count, bytes };
}

function largest(blocks: number[], size: (block: number) => number, most: number): number[] {
  return blocks.sort((a, b) => size(b) - size(a) || a - b).slice(0, most);
}

/** A block's own name, else its operation, its line, its address, or what it is. */
export function titleOf(record: MemoryColumns, block: number): string {
  const category = CATEGORIES[record.block_category[block] ?? 0] ?? 'block';
  const known = nameOf(record, block) || opOf(record, block);
  if (known) return known;
  const source = record.sources[record.block_source[block] ?? -1];
  return source ? sourceLabel(source) : addressOf(record, block) || category;
}

export function nameOf(record: MemoryColumns, block: number): string {
  return record.strings[record.block_name[block] ?? -1] ?? '';
}

export function opOf(record: MemoryColumns, block: number): string {
  return record.strings[record.block_op[block] ?? -1] ?? '';
}

export function moduleOf(record: MemoryColumns, block: number): string {
  return record.strings[record.block_module[block] ?? -1] ?? '';
}

/** `0x7feb…`, empty where there are no addresses (CPU). */
export function addressOf(record: MemoryColumns, block: number): string {
  const address = record.block_address[block] ?? -1;
  return address < 0 ? '' : `0x${address.toString(16)}`;
}

/** Where the peak is: `backward of body.0`, `forward`, or empty. */
export function peakPlace(record: MemoryColumns): string {
  const phase = phaseAt(record, record.peak_event);
  let module = '';
  for (let block = 0; block < record.block_start.length && !module; block += 1)
    if (record.block_start[block] === record.peak_event) module = moduleOf(record, block);
  if (phase && module) return `${phase} of ${module}`;
  return phase || module;
}
