/** Which blocks a person looks for: words, sizes, addresses, lines, stacks and hidden categories. */
import { CATEGORIES, type MemoryColumns } from './series';

export interface Filter {
  /** Categories that are hidden. */
  hidden: ReadonlySet<number>;
  /**
   * Words of the search; `>1MiB` and `<64KiB` compare sizes, `0x7f…` is an address, `module:a.b` is
   * that module and those in it, and `stack:forward` whatever such a call allocated, itself or by
   * what it called.
   */
  query: string;
  /** What else must hold. */
  also?: ((block: number) => boolean) | null;
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

type Test = (block: number) => boolean;

/**
 * Whether a block passes the filter; all words must. Names are compared once each and not once per
 * block, so that a million blocks are quick.
 */
export function matcher(record: MemoryColumns, { hidden, query, also }: Filter): Test {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => testOf(record, word));
  if (also) tests.push(also);
  if (tests.length === 0) return (block) => !hidden.has(record.block_category[block] ?? 0);
  return (block) =>
    !hidden.has(record.block_category[block] ?? 0) && tests.every((test) => test(block));
}

function testOf(record: MemoryColumns, word: string): Test {
  if (word.startsWith('stack:')) return stackTest(record, word.slice('stack:'.length));
  if (word.startsWith('module:')) return moduleTest(record, word.slice('module:'.length));
  return sizeTest(record, word) ?? wordTest(record, word);
}

/** Which sources a word names, by place or by function. */
function sourcesNamed(record: MemoryColumns, word: string): boolean[] {
  return record.sources.map(({ filename, line, cell, function: name }) => {
    const place = cell === null ? `${filename}:${line}` : `cell ${cell}, line ${line}`;
    return `${place} ${name}`.toLowerCase().includes(word);
  });
}

/** A call stands behind the one that made it, so one pass finds what is below. */
function stackTest(record: MemoryColumns, word: string): Test {
  const sources = sourcesNamed(record, word);
  const inside = new Uint8Array(record.call_parent.length);
  for (let call = 0; call < inside.length; call += 1) {
    const above = inside[record.call_parent[call] ?? -1] ?? 0;
    inside[call] = sources[record.call_source[call] ?? -1] ? 1 : above;
  }
  return (block) => inside[record.block_call[block] ?? -1] === 1;
}

function moduleTest(record: MemoryColumns, path: string): Test {
  const inside = record.strings.map((text) => {
    const own = text.toLowerCase();
    return own === path || own.startsWith(`${path}.`);
  });
  return (block) => inside[record.block_module[block] ?? 0] ?? false;
}

function sizeTest(record: MemoryColumns, word: string): Test | null {
  const size = SIZE.exec(word);
  if (!size) return null;
  const limit = Number(size[2]) * (FACTORS[size[3] ?? 'b'] ?? 1);
  const above = size[1] === '>';
  return (block) => {
    const bytes = record.block_bytes[block] ?? 0;
    return above ? bytes > limit : bytes < limit;
  };
}

function wordTest(record: MemoryColumns, word: string): Test {
  const strings = record.strings.map((text) => text.toLowerCase().includes(word));
  const sources = sourcesNamed(record, word);
  const categories = CATEGORIES.map((name) => name.includes(word));
  const address = /^0x[0-9a-f]*$/.test(word);
  return (block) =>
    (strings[record.block_name[block] ?? 0] ?? false) ||
    (strings[record.block_op[block] ?? 0] ?? false) ||
    (strings[record.block_module[block] ?? 0] ?? false) ||
    (sources[record.block_source[block] ?? -1] ?? false) ||
    (categories[record.block_category[block] ?? 6] ?? false) ||
    (address && `0x${(record.block_address[block] ?? 0).toString(16)}`.includes(word));
}
