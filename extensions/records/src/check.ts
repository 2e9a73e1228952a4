/** The rules of `schema.ts`, checked: the twin of `workbench/records/check.py`. */
import type { Numbers } from './bytes';
import { RecordError, type Words } from './schema';

type Values = Numbers | readonly number[];
type Beside = Readonly<Record<string, Values>>;
type SizeOf = (name: string) => number;

/** Integers with the same rules: a column, or a field of every item of a list. */
export interface Column {
  /** What the number in a row is called: `node_type[3]`, `modules[3].parent`. */
  readonly label: (row: number) => string;
  readonly values: Values;
  readonly rules: Words;
  /** Columns that have the same rows. */
  readonly beside: Beside;
}

/** Throws one sentence about the first row that breaks a rule. */
export function checkColumn({ label, values, rules, beside }: Column, sizeOf: SizeOf): void {
  for (const rule of rules.split(' ')) {
    const [row, expected] = broken(rule, values, beside, sizeOf);
    if (row >= 0) {
      throw new RecordError(`${label(row)} is ${values[row]}, expected ${expected}`);
    }
  }
}

/** The first row that breaks a rule, -1 where none does, and what is valid there. */
function broken(
  rule: string,
  values: Values,
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
    return [firstRow(values, (value, own) => value >= own), 'a row before its own'];
  }
  if (sign === '>=') return [outside(values, Number(name), Infinity), `at least ${name}`];
  if (sign === '>') {
    const other = beside[name] as Values;
    const row = firstRow(values, (value, i) => value >= 0 && value <= (other[i] as number));
    return [row, `more than its ${name}`];
  }
  if (sign === '=') {
    const size = name.split('*').reduce((product, one) => product * sizeOf(one), 1);
    const { length } = values;
    return [length === size ? -1 : Math.min(length, size), `${size} entries in all (${name})`];
  }
  if (rule === 'sorted') {
    const row = firstRow(values, (value, i) => value < (values[i - 1] as number));
    return [row, 'no less than before'];
  }
  if (rule === 'I64') return [outside(values, -EXACT, EXACT), 'less than 2^53 in size'];
  return [-1, ''];
}

const EXACT = Number.MAX_SAFE_INTEGER;

function outside(values: Values, low: number, high: number): number {
  for (let row = 0; row < values.length; row += 1) {
    const value = values[row] as number;
    if (value < low || value > high) return row;
  }
  return -1;
}

function firstRow(values: Values, wrong: (value: number, row: number) => boolean): number {
  return (values as readonly number[]).findIndex(wrong);
}
