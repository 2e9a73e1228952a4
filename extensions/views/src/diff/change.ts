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

/** A gradient norm that grew or shrank by more than this is worth telling. */
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

/** Reads the change of an operation: of the rows that it is made of, the last one stands for it. */
export function readChange(record: DiffColumns, { rows }: Operation): Change {
  const [inA, inB] = [record.node_a, record.node_b].map((column) =>
    rows.filter((row) => Number(column[row]) >= 0),
  ) as [number[], number[]];
  const states = new Set(rows.map((row) => stateOf(record, row)));
  const [only = 'same'] = states;
  const change: Change = {
    state: states.size === 1 ? only : 'changed',
    a: sideOf(record, inA, A),
    b: sideOf(record, inB, B),
    left: [],
    joined: [],
    casts: false,
    growth: 0,
  };
  for (const row of rows) {
    const state = stateOf(record, row);
    if (state !== 'removed' && state !== 'added') continue;
    const type = record.strings[Number(record.node_type[row])] ?? '';
    change.casts ||= isCast(type);
    if (states.size > 1) (state === 'removed' ? change.left : change.joined).push(type);
  }
  change.growth = growth(change.a?.norm ?? null, change.b?.norm ?? null);
  return change;
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
export function isBeyond({ growth: log }: Change): boolean {
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
  const [norm, bad] = [value(names.norm), value(names.bad)];
  return {
    shape: record.strings[value(names.shape)] ?? '',
    dtype: record.strings[value(names.dtype)] ?? '',
    source: value(names.source),
    saved: sum(names.saved),
    shared: sum(names.shared),
    norm: bad > 0 ? Infinity : bad < 0 || Number.isNaN(norm) ? null : norm,
  };
}

function growth(a: number | null, b: number | null): number {
  if (a === null || b === null || a === b) return 0;
  if (!Number.isFinite(a) || b === 0) return -Infinity;
  return !Number.isFinite(b) || a === 0 ? Infinity : Math.log(b / a);
}
