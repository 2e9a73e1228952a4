/** Changes of every operation, and their counts over any box in one subtraction. */
import { DIFF_STATES, type DiffState } from '@torch-workbench/records';
import { size, type Item } from '../graph/groups';
import type { Operation } from '../graph/operations';
import { isBeyond, readChange, type Change } from './change';
import type { DiffColumns } from './columns';

/** What a filter can leave lit. */
export type Filter = DiffState | 'casts' | 'gradient';
export const FILTERS: readonly Filter[] = [
  'removed',
  'added',
  'changed',
  'casts',
  'gradient',
  'same',
];

export class ChangeIndex {
  readonly changes: readonly Change[];
  /** Whether anything was removed, added or changed. */
  readonly isEqual: boolean;
  readonly #before: Record<Filter, Int32Array>;
  readonly #bytes: Record<'a' | 'b', Float64Array>;

  constructor(record: DiffColumns, operations: readonly Operation[]) {
    this.changes = operations.map((operation) => readChange(record, operation));
    const count = operations.length;
    this.#before = Object.fromEntries(
      FILTERS.map((filter) => [filter, sums(count, (id) => Number(this.fits(id, filter)))]),
    ) as Record<Filter, Int32Array>;
    const bytes = (side: 'a' | 'b') => (id: number) => this.of(id)[side]?.saved ?? 0;
    this.#bytes = { a: running(count, bytes('a')), b: running(count, bytes('b')) };
    this.isEqual = DIFF_STATES.every(
      (state) => state === 'same' || (this.#before[state][count] ?? 0) === 0,
    );
  }

  of(operation: number): Change {
    const found = this.changes[operation];
    if (!found) throw new RangeError(`no operation ${operation}`);
    return found;
  }

  fits(operation: number, filter: Filter): boolean {
    const change = this.of(operation);
    if (filter === 'gradient') return isBeyond(change);
    return filter === 'casts' ? change.casts : change.state === filter;
  }

  /** Operations of an item that a filter leaves lit. */
  count(item: Item, filter: Filter): number {
    return between(this.#before[filter], item);
  }

  /** The state that all operations of an item share; `changed` where they differ. */
  state(item: Item): DiffState {
    if (item.kind === 'operation') return this.of(item.id).state;
    const whole = size(item);
    return DIFF_STATES.find((state) => this.count(item, state) === whole) ?? 'changed';
  }

  /** Bytes saved for backward in A and in B. */
  saved(item: Item): { a: number; b: number } {
    return { a: between(this.#bytes.a, item), b: between(this.#bytes.b, item) };
  }
}

function between(before: ArrayLike<number>, item: Item): number {
  const [start, end] = item.kind === 'operation' ? [item.id, item.id + 1] : [item.start, item.end];
  return (before[end] ?? 0) - (before[start] ?? 0);
}

function sums(count: number, of: (id: number) => number): Int32Array {
  return Int32Array.from(running(count, of));
}

function running(count: number, of: (id: number) => number): Float64Array {
  const before = new Float64Array(count + 1);
  for (let id = 0; id < count; id += 1) before[id + 1] = (before[id] ?? 0) + of(id);
  return before;
}
