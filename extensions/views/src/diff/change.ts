/** What became of one operation from A to B: its state, and both of its sides. */
import { DIFF_STATES, type DiffState } from '@torch-workbench/records';
import type { Column } from '../graph/columns';
import type { Operation } from '../graph/operations';
import type { DiffColumns } from './columns';

export type { DiffState } from '@torch-workbench/records';

/** The sign of each state: colour is never the only one. */
export const SIGNS: Record<DiffState, string> = {
  same: '=',
  removed: '−',
  added: '+',
  changed: '≠',
};

/** A gradient norm that grew or shrank by more than this is worth showing. */
export const BEYOND = 3;

/** An operation as one of the two captures has it. */
export interface Side {
  shape: string;
  dtype: string;
  /** Index into the record's `sources`, -1 where unknown. */
  source: number;
  /** Bytes held here first, and bytes that an earlier operation holds too. */
  saved: number;
  shared: number;
  /** L2 norm of the gradient of its output; infinite where values are not finite, null if unknown. */
  norm: number | null;
}

export interface Change {
  state: DiffState;
  /** Null where A does not have it; likewise for B. */
  a: Side | null;
  b: Side | null;
  /** Types of backward nodes that left or joined an operation which both have. */
  left: string[];
  joined: string[];
  /** Whether a conversion of dtype is among what left or joined. */
  casts: boolean;
  /** `ln(norm in B / norm in A)`; 0 where one of them is unknown. */
  growth: number;
}

/** What is known of every operation at once; `readChange` reads the rest of one. */
export interface Glance {
  state: DiffState;
  savedA: number;
  savedB: number;
  casts: boolean;
  growth: number;
  /** Whether both captures know the gradient of its output. */
  measured: boolean;
}

/** Reads a glance. A large diff has many operations: one loop, and nothing but numbers. */
export function glanceAt(record: DiffColumns, { rows }: Operation): Glance {
  const found: Glance = {
    state: 'same',
    savedA: 0,
    savedB: 0,
    casts: false,
    growth: 0,
    measured: false,
  };
  let [lastA, lastB] = [-1, -1];
  rows.forEach((row, at) => {
    const state = stateOf(record, row);
    found.state = at === 0 || state === found.state ? state : 'changed';
    if (state !== 'added') {
      lastA = row;
      found.savedA += Number(record.node_saved_bytes[row]);
    }
    if (state !== 'removed') {
      lastB = row;
      found.savedB += Number(record.node_saved_bytes_b[row]);
    }
    if (state === 'added' || state === 'removed') found.casts ||= isCast(typeOf(record, row));
  });
  if (lastA < 0 || lastB < 0) return found;
  const [a, b] = [normOf(record, lastA, A), normOf(record, lastB, B)];
  found.measured = a !== null && b !== null;
  found.growth = growth(a, b);
  return found;
}

/** Reads the change of an operation: of the rows that it is made of, the last one stands for it. */
export function readChange(record: DiffColumns, operation: Operation): Change {
  const { state, casts, growth: log } = glanceAt(record, operation);
  const of = (unlike: DiffState): number[] =>
    operation.rows.filter((row) => stateOf(record, row) !== unlike);
  const [inA, inB] = [of('added'), of('removed')];
  const types = (rows: readonly number[], other: readonly number[]): string[] =>
    state === 'changed'
      ? rows.filter((row) => !other.includes(row)).map((row) => typeOf(record, row))
      : [];
  return {
    state,
    casts,
    growth: log,
    a: sideOf(record, inA, A),
    b: sideOf(record, inB, B),
    left: types(inA, inB),
    joined: types(inB, inA),
  };
}

function typeOf(record: DiffColumns, row: number): string {
  return record.strings[Number(record.node_type[row])] ?? '';
}

/** What became of one row. */
export function stateOf(record: DiffColumns, row: number): DiffState {
  return DIFF_STATES[Number(record.node_state[row])] ?? 'same';
}

/** Whether a backward node is a conversion of dtype or device. */
export function isCast(type: string): boolean {
  return type.startsWith('ToCopyBackward');
}

/** Whether a gradient changed by more than `BEYOND`. */
export function isBeyond({ growth: log }: Pick<Change, 'growth'>): boolean {
  return Math.abs(log) > Math.log(BEYOND);
}

type Names = Record<'shape' | 'dtype' | 'source' | 'saved' | 'shared' | 'norm' | 'bad', Field>;
type Field = {
  [K in keyof DiffColumns]: DiffColumns[K] extends Column ? K : never;
}[keyof DiffColumns];

const A: Names = {
  shape: 'node_shape',
  dtype: 'node_dtype',
  source: 'node_source',
  saved: 'node_saved_bytes',
  shared: 'node_shared_bytes',
  norm: 'node_gradient_norm',
  bad: 'node_gradient_non_finite',
};
const B: Names = {
  shape: 'node_shape_b',
  dtype: 'node_dtype_b',
  source: 'node_source_b',
  saved: 'node_saved_bytes_b',
  shared: 'node_shared_bytes_b',
  norm: 'node_gradient_norm_b',
  bad: 'node_gradient_non_finite_b',
};

function sideOf(record: DiffColumns, rows: readonly number[], names: Names): Side | null {
  const last = rows[rows.length - 1];
  if (last === undefined) return null;
  const value = (field: Field, row = last): number =>
    Number((record[field] as Column | undefined)?.[row]);
  const sum = (field: Field): number => rows.reduce((total, row) => total + value(field, row), 0);
  return {
    shape: record.strings[value(names.shape)] ?? '',
    dtype: record.strings[value(names.dtype)] ?? '',
    source: value(names.source),
    saved: sum(names.saved),
    shared: sum(names.shared),
    norm: normOf(record, last, names),
  };
}

/** The norm of a row's gradient; infinite where values are not finite, null where unknown. */
function normOf(record: DiffColumns, row: number, names: Names): number | null {
  const norm = Number((record[names.norm] as Column)[row]);
  const bad = Number((record[names.bad] as Column)[row]);
  if (bad > 0) return Infinity;
  return bad < 0 || Number.isNaN(norm) ? null : norm;
}

function growth(a: number | null, b: number | null): number {
  if (a === null || b === null || a === b) return 0;
  if (!Number.isFinite(a) || b === 0) return -Infinity;
  return !Number.isFinite(b) || a === 0 ? Infinity : Math.log(b / a);
}
