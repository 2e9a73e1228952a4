/** Which operation holds which storage for backward, and what releasing it would free. */
import { STORAGE_KINDS, type StorageKind } from '@torch-workbench/records';
import type { GraphColumns } from './columns';
import { rangeOf, type Item } from './groups';
import { isOperation, type Operation } from './operations';

/** One saved tensor of an operation. */
export interface Saved {
  /** torch's name of it, `input`. */
  name: string;
  shape: string;
  storage: number;
  kind: StorageKind;
  /** Bytes of the whole storage. */
  bytes: number;
}

/** What an operation or a module holds, split by what would free it. */
export interface Holding {
  /** Activations held here and nowhere else. */
  alone: number;
  /** Activations that operations elsewhere hold as well. */
  shared: number;
  /** Parameters, buffers and inputs: they stay whatever the graph does. */
  anyway: number;
  /** Operations elsewhere that hold one of them, with the bytes they share; most bytes first. */
  others: { operation: Operation; bytes: number }[];
}

/** The operations of a box, in forward order. */
export function within(item: Item, operations: readonly Operation[]): readonly Operation[] {
  return isOperation(item) ? [item] : operations.slice(item.start, item.end);
}

/** The record's table of holds, by operation and by storage. */
export class Storages {
  readonly #firstHold: Int32Array;
  readonly #holders: number[][];

  constructor(
    private readonly record: GraphColumns,
    private readonly operations: readonly Operation[],
  ) {
    const owner = new Int32Array(record.node_op.length).fill(-1);
    for (const { id, rows } of operations) for (const row of rows) owner[row] = id;
    this.#firstHold = startOfRows(record);
    this.#holders = Array.from(record.storage_bytes, () => []);
    for (let hold = 0; hold < record.hold_node.length; hold += 1) {
      const operation = owner[record.hold_node[hold]] ?? -1;
      const list = this.#holders[record.hold_storage[hold]];
      if (operation >= 0 && list && !list.includes(operation)) list.push(operation);
    }
  }

  /** Everything an operation holds, in the order torch names it. */
  of(operation: Operation): Saved[] {
    const found: Saved[] = [];
    for (const row of operation.rows) {
      const end = this.#firstHold[row + 1];
      for (let hold = this.#firstHold[row]; hold < end; hold += 1) found.push(this.#saved(hold));
    }
    return found;
  }

  /** Operations that hold a storage, in forward order. */
  holdersOf(storage: number): Operation[] {
    const ids = [...(this.#holders[storage] ?? [])].sort((a, b) => a - b);
    return ids.flatMap((id) => this.operations[id] ?? []);
  }

  /** Distinct storages of an item. */
  distinct(item: Item): Saved[] {
    const found = new Map<number, Saved>();
    for (const operation of within(item, this.operations))
      for (const saved of this.of(operation))
        if (!found.has(saved.storage)) found.set(saved.storage, saved);
    return [...found.values()];
  }

  /** What `item` holds, and who else does. */
  holding(item: Item): Holding {
    const [start, end] = rangeOf(item);
    const result: Holding = { alone: 0, shared: 0, anyway: 0, others: [] };
    const others = new Map<Operation, number>();
    for (const { storage, kind, bytes } of this.distinct(item)) {
      const elsewhere = this.holdersOf(storage).filter(({ id }) => id < start || id >= end);
      if (kind !== 'activation') result.anyway += bytes;
      else if (elsewhere.length === 0) result.alone += bytes;
      else result.shared += bytes;
      for (const operation of elsewhere)
        others.set(operation, (others.get(operation) ?? 0) + bytes);
    }
    result.others = [...others]
      .map(([operation, bytes]) => ({ operation, bytes }))
      .sort((a, b) => b.bytes - a.bytes || a.operation.id - b.operation.id);
    return result;
  }

  #saved(hold: number): Saved {
    const { record } = this;
    const storage = record.hold_storage[hold];
    return {
      name: record.strings[record.hold_name[hold]] ?? '',
      shape: record.strings[record.hold_shape[hold]] ?? '',
      storage,
      kind: STORAGE_KINDS[record.storage_kind[storage]] ?? 'activation',
      bytes: record.storage_bytes[storage],
    };
  }
}

/** Where each row's holds begin: `hold_node` is ascending. */
function startOfRows(record: GraphColumns): Int32Array {
  const start = new Int32Array(record.node_op.length + 1);
  for (let hold = 0; hold < record.hold_node.length; hold += 1) {
    start[record.hold_node[hold] + 1] += 1;
  }
  for (let row = 0; row + 1 < start.length; row += 1) start[row + 1] += start[row];
  return start;
}
