/** Blocks at a moment: who holds memory, filtered and by size. */
import { CATEGORIES, isLive, phaseAt, type MemoryColumns } from './series';

export interface Filter {
  /** Categories that are hidden. */
  hidden: ReadonlySet<number>;
  /** Words of the search; `>1MiB` and `<64KiB` compare sizes. */
  query: string;
}

export interface Holders {
  /** Blocks, largest first, at most as many as asked for. */
  blocks: number[];
  count: number;
  bytes: number;
}

const SIZE = /^([<>])(\d+(?:\.\d+)?)(b|kib|mib|gib|k|m|g)?$/;
const FACTORS: Record<string, number> = {
  b: 1,
  k: 2 ** 10,
  kib: 2 ** 10,
  m: 2 ** 20,
  mib: 2 ** 20,
  g: 2 ** 30,
  gib: 2 ** 30,
};

/** The blocks live at a position that pass the filter. */
export function holdersAt(
  record: MemoryColumns,
  position: number,
  filter: Filter,
  most: number,
): Holders {
  const fits = matcher(record, filter);
  const blocks: number[] = [];
  let bytes = 0;
  for (let block = 0; block < record.block_start.length; block += 1) {
    if (!isLive(record, block, position) || !fits(block)) continue;
    blocks.push(block);
    bytes += record.block_bytes[block] ?? 0;
  }
  const size = (block: number): number => record.block_bytes[block] ?? 0;
  blocks.sort((a, b) => size(b) - size(a) || a - b);
  return { blocks: blocks.slice(0, most), count: blocks.length, bytes };
}

/** Whether a block passes the filter. */
export function matcher(record: MemoryColumns, filter: Filter): (block: number) => boolean {
  const words = filter.query.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word): ((block: number) => boolean) => {
    const size = SIZE.exec(word);
    if (!size) return (block) => wordsOf(record, block).includes(word);
    const limit = Number(size[2]) * (FACTORS[size[3] ?? 'b'] ?? 1);
    const above = size[1] === '>';
    return (block) => {
      const bytes = record.block_bytes[block] ?? 0;
      return above ? bytes > limit : bytes < limit;
    };
  });
  return (block) =>
    !filter.hidden.has(record.block_category[block] ?? 0) && tests.every((test) => test(block));
}

function wordsOf(record: MemoryColumns, block: number): string {
  const category = CATEGORIES[record.block_category[block] ?? 0] ?? '';
  const text = `${nameOf(record, block)} ${opOf(record, block)} ${moduleOf(record, block)} ${category}`;
  return `${text} ${addressOf(record, block)}`.toLowerCase();
}

/** A block's own name, else its operation, its address, or what it is. */
export function titleOf(record: MemoryColumns, block: number): string {
  const category = CATEGORIES[record.block_category[block] ?? 0] ?? 'block';
  return nameOf(record, block) || opOf(record, block) || addressOf(record, block) || category;
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
