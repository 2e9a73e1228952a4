/** Changes of every operation, and their counts over any box in one subtraction. */
import { DIFF_STATES, type DiffState } from '@torch-workbench/records';
import { rangeOf, size, type Item } from '../graph/groups';
import type { Operation } from '../graph/operations';
import { glanceAt, isBeyond, readChange, type Change, type Glance } from './change';
import type { DiffColumns } from './columns';
import { ratio } from './words';

/** What a filter can leave lit. */
export type Filter = DiffState | 'casts' | 'gradient' | 'a' | 'b';

/** Those of a change; what A or B has is selected by its letter. */
export const CHANGES: readonly Filter[] = [
  'removed',
  'added',
  'changed',
  'casts',
  'gradient',
  'same',
];
const FILTERS: readonly Filter[] = [...CHANGES, 'a', 'b'];

export class ChangeIndex {
  /** Whether anything was removed, added or changed. */
  readonly isEqual: boolean;
  /** Operations whose gradient both captures know. */
  readonly numMeasured: number;
  readonly #before: Record<Filter, Int32Array>;
  readonly #bytes: Record<'a' | 'b', Float64Array>;
  readonly #glances: readonly Glance[];
  readonly #changes = new Map<number, Change>();

  constructor(
    private readonly record: DiffColumns,
    private readonly operations: readonly Operation[],
  ) {
    this.#glances = operations.map((operation) => glanceAt(record, operation));
    this.numMeasured = this.#glances.filter(({ measured }) => measured).length;
    const count = operations.length;
    this.#before = Object.fromEntries(
      FILTERS.map((filter) => [filter, sums(count, (id) => Number(this.fits(id, filter)))]),
    ) as Record<Filter, Int32Array>;
    this.#bytes = {
      a: running(count, (id) => this.#glance(id).savedA),
      b: running(count, (id) => this.#glance(id).savedB),
    };
    this.isEqual = DIFF_STATES.every(
      (state) => state === 'same' || (this.#before[state][count] ?? 0) === 0,
    );
  }

  /** Everything about the change of an operation; read on first use. */
  of(id: number): Change {
    const operation = this.operations[id];
    if (!operation) throw new RangeError(`no operation ${id}`);
    const change = this.#changes.get(id) ?? readChange(this.record, operation);
    this.#changes.set(id, change);
    return change;
  }

  /** What became of an operation. */
  stateOf(id: number): DiffState {
    return this.#glance(id).state;
  }

  fits(id: number, filter: Filter): boolean {
    const glance = this.#glance(id);
    if (filter === 'gradient') return isBeyond(glance);
    if (filter === 'a') return glance.state !== 'added';
    if (filter === 'b') return glance.state !== 'removed';
    return filter === 'casts' ? glance.casts : glance.state === filter;
  }

  #glance(id: number): Glance {
    const found = this.#glances[id];
    if (!found) throw new RangeError(`no operation ${id}`);
    return found;
  }

  /** Operations of an item that a filter leaves lit. */
  count(item: Item, filter: Filter): number {
    return between(this.#before[filter], item);
  }

  /** The state that all operations of an item share; `changed` where they differ. */
  state(item: Item): DiffState {
    if (item.kind === 'operation') return this.stateOf(item.id);
    const whole = size(item);
    return DIFF_STATES.find((state) => this.count(item, state) === whole) ?? 'changed';
  }

  /** `▲ × 3.3 to 7.0`: the gradients of an item beyond the limit; their number where some grew and others shrank. */
  moved(item: Item): string {
    const count = this.count(item, 'gradient');
    if (count === 0) return '';
    const [start, end] = rangeOf(item);
    const logs = this.#glances
      .slice(start, end)
      .filter(isBeyond)
      .map(({ growth }) => growth)
      .sort((x, y) => Math.abs(x) - Math.abs(y));
    const [least = 0] = logs;
    const most = logs[count - 1] ?? 0;
    if (logs.some((log) => log > 0 !== most > 0) || !Number.isFinite(most)) return `▽${count}`;
    const ends = [...new Set([least, most].map(ratio))];
    return `${most > 0 ? '▲' : '▼'} ${ends.join(' to ').replace(/ to [×÷]/, ' to')}`;
  }

  /** Bytes saved for backward in A and in B. */
  saved(item: Item): { a: number; b: number } {
    return { a: between(this.#bytes.a, item), b: between(this.#bytes.b, item) };
  }
}

function between(before: ArrayLike<number>, item: Item): number {
  const [start, end] = rangeOf(item);
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
