/** The rules of `schema.ts`, checked: the twin of `workbench/records/check.py`. */
import type { Numbers } from './bytes';
import { RecordError, type Words } from './schema';

type Beside = Readonly<Record<string, Numbers>>;
type SizeOf = (name: string) => number;

/** Integers with the same rules: a column, or a field of every item of a list. */
export interface Column {
  /** What the number in a row is called: `node_type[3]`, `modules[3].parent`. */
  readonly label: (row: number) => string;
  readonly values: Numbers;
  readonly rules: Words;
  /** Columns that have the same rows. */
  readonly beside: Beside;
}

/** Throws one sentence about the first row that breaks a rule. */
export function checkColumn({ label, values, rules, beside }: Column, sizeOf: SizeOf): void {
  // Rules with a bound keep to exact integers too: one pass over the column, not two.
  for (const rule of rules.replace('I64 >', '>').split(' ')) {
    const [row, expected] = broken(rule, values, beside, sizeOf);
    if (row >= 0) {
      throw new RecordError(`${label(row)} is ${values[row]}, expected ${expected}`);
    }
  }
}

/** The first row that breaks a rule, -1 where none does, and what is valid there. */
function broken(
  rule: string,
  values: Numbers,
  beside: Beside,
  sizeOf: SizeOf,
): [row: number, expected: string] {
  const [, sign, name = '', flags = ''] = /^(@|>=?|=|)([^?+<]*)(.*)$/.exec(rule) ?? [];
  if (sign === '@') {
    const low = flags.includes('?') ? -1 : 0;
    const high = sizeOf(name) - (flags.includes('+') ? 0 : 1);
    const row = outside(values, low, high);
    if (row >= 0 || !flags.includes('<')) {
      return [row, high < low ? `no row: ${name} is empty` : `${low} to ${high} (rows of ${name})`];
    }
    return [values.findIndex((value: number, own: number) => value >= own), 'a row before its own'];
  }
  if (sign === '>=') {
    return [outside(values, Number(name), EXACT), `at least ${name} and below 2^53`];
  }
  if (sign === '>') {
    return [firstNotAfter(values, beside[name] as Numbers), `more than its ${name}`];
  }
  if (sign === '=') {
    const size = name.split('*').reduce((product, one) => product * sizeOf(one), 1);
    const { length } = values;
    return [length === size ? -1 : Math.min(length, size), `${size} entries in all (${name})`];
  }
  if (rule === 'sorted') {
    return [firstDrop(values), 'no less than before'];
  }
  if (rule === 'I64') return [outside(values, -EXACT, EXACT), 'less than 2^53 in size'];
  return [-1, ''];
}

const EXACT = Number.MAX_SAFE_INTEGER;

/**
 * The first row below `low` or above `high`. Every kind of array has a loop of its own, with bounds
 * of its own kind: a loop that has seen two kinds, or a bound that is no int32, takes twice as long.
 */
function outside(values: Numbers, low: number, high: number): number {
  if (values instanceof Int32Array) {
    return outside32(values, Math.max(low, -(2 ** 31)), Math.min(high, 2 ** 31 - 1));
  }
  if (values instanceof Uint8Array) return outside8(values, low, high);
  return outside64(values as Float64Array, low, high);
}

function outside32(values: Int32Array, low: number, high: number): number {
  for (let row = 0; row < values.length; row += 1) {
    const value = values[row] as number;
    if (value < low || value > high) return row;
  }
  return -1;
}

function outside8(values: Uint8Array, low: number, high: number): number {
  for (let row = 0; row < values.length; row += 1) {
    const value = values[row] as number;
    if (value < low || value > high) return row;
  }
  return -1;
}

function outside64(values: Float64Array, low: number, high: number): number {
  for (let row = 0; row < values.length; row += 1) {
    const value = values[row] as number;
    if (value < low || value > high) return row;
  }
  return -1;
}

/** The first row whose value is below that of `least`, or equal to it; -1 ("none") is exempt. */
function firstNotAfter(values: Numbers, least: Numbers): number {
  for (let row = 0; row < values.length; row += 1) {
    const value = values[row] as number;
    if (value >= 0 && value <= (least[row] as number)) return row;
  }
  return -1;
}

function firstDrop(values: Numbers): number {
  for (let row = 1; row < values.length; row += 1) {
    if ((values[row] as number) < (values[row - 1] as number)) return row;
  }
  return -1;
}
