/**
 * What a block is called when blocks are grouped: twin of `workbench/memory/render/diff.py`, which says the
 * same of the same records. A test holds the two together.
 */
import { CATEGORIES, categoryLabel, type MemoryColumns } from '../memory/series';

/** What blocks can be grouped by. */
export const BY = ['category', 'module', 'line', 'stack'] as const;
export type By = (typeof BY)[number];

/** The group of a block. */
export type Naming = (block: number) => string;

const NO_MODULE = 'no module known';
const NO_LINE = 'no line known';
const NO_STACK = 'no stack known';
const LIBRARY = 'library code alone';
/** Between calls, from the outermost in. */
export const INTO = ' › ';
/** Beginnings of names of what was typed, not read from a file. */
const TYPED = ['<ipython', '<stdin>', '<cell'];
const LIBRARY_PARTS = ['site-packages', 'dist-packages', '/torch/', '<frozen', '??'];

type Source = MemoryColumns['sources'][number];

/** The group of every block, each name made once. */
export function namingOf(record: MemoryColumns, by: By): Naming {
  switch (by) {
    case 'category':
      return (block) => categoryLabel(record.block_category[block] ?? CATEGORIES.length - 1);
    case 'module':
      return (block) => record.strings[record.block_module[block] ?? 0] || NO_MODULE;
    case 'line':
      return once(record.block_source, (source) => lineName(record.sources[source]));
    case 'stack':
      return once(record.block_call, (call) => stackName(record, call));
  }
}

/** Category and place together: what the sentence says. */
export function causeOf(record: MemoryColumns, place: 'module' | 'line'): Naming {
  const category = namingOf(record, 'category');
  const where = namingOf(record, place);
  return (block) => {
    const [what, at] = [category(block), where(block)];
    return at === NO_MODULE || at === NO_LINE ? what : `${what} in ${at}`;
  };
}

/** The calls of a person's own code that allocated a block, from the outermost in. */
export function ownCalls(record: MemoryColumns, block: number): Source[] {
  const found: Source[] = [];
  let call = record.block_call[block] ?? -1;
  while (call >= 0) {
    const source = record.sources[record.call_source[call] ?? -1];
    if (source && isOwn(source)) found.push(source);
    call = record.call_parent[call] ?? -1;
  }
  return found.reverse();
}

/** `model.py:11`; `line 3 of a cell: x = f(y)`, as a cell that ran again has another number. */
export function placeOf({ filename, line, cell, text }: Source): string {
  if (cell === null) return `${filename.slice(filename.lastIndexOf('/') + 1)}:${line}`;
  return `line ${line} of a cell: ${text}`.replace(/[: ]+$/, '');
}

function once(column: ArrayLike<number>, name: (key: number) => string): Naming {
  const known = new Map<number, string>();
  return (block) => {
    const key = column[block] ?? -1;
    let text = known.get(key);
    if (text === undefined) known.set(key, (text = name(key)));
    return text;
  };
}

function lineName(source: Source | undefined): string {
  return source ? placeOf(source) : NO_LINE;
}

function stackName(record: MemoryColumns, innermost: number): string {
  if (innermost < 0) return NO_STACK;
  const names: string[] = [];
  for (let call = innermost; call >= 0; call = record.call_parent[call] ?? -1) {
    const source = record.sources[record.call_source[call] ?? -1];
    if (source && isOwn(source)) names.push(`${source.function} ${placeOf(source)}`.trim());
  }
  return names.reverse().join(INTO) || LIBRARY;
}

function isOwn({ cell, filename }: Source): boolean {
  if (cell !== null) return true;
  const python = filename.endsWith('.py') || TYPED.some((start) => filename.startsWith(start));
  return python && !LIBRARY_PARTS.some((part) => filename.includes(part));
}
