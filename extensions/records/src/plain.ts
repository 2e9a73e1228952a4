/** The plain fields of a record: JSON compared with the types that the dataclass declares. */
import type { Column } from './check';
import { RecordError, type Shape, type Words } from './schema';

type Fields = Record<string, unknown>;
type Label = (row: number) => string;

/** Half of a pair of code units is no text: it cannot be written as UTF-8. */
const HALF = /\p{Surrogate}/u;

type Judge = readonly [fits: (value: unknown) => boolean, expected: string];

const JUDGES: Readonly<Record<string, Judge>> = {
  str: [(value) => typeof value === 'string' && !HALF.test(value), 'text in UTF-8'],
  int: [Number.isSafeInteger, 'a whole number below 2^53'],
  float: [(value) => value === null || Number.isFinite(value), 'a number'],
  bool: [(value) => typeof value === 'boolean', 'true or false'],
};

/**
 * Dataclasses of one kind out of JSON, with the fields of `shape` and nothing else; throws where
 * one does not fit. Their integers are added to `found`: columns that are written by rows.
 */
export function readItems(
  items: readonly unknown[],
  shape: Shape,
  label: Label,
  more: Words,
  found: Column[],
): Fields[] {
  const rows: Fields[] = items.map(() => ({}));
  const beside: Record<string, number[]> = {};
  for (const [key, expected] of Object.entries(shape)) {
    const name = key.replace('?', '');
    const labelOf: Label = (row) => label(row) + name;
    const values = items.map((item, row) => {
      if (Object(item) !== item) refuse(label(row), item, 'an object');
      const value = Object.hasOwn(item as object, name) ? (item as Fields)[name] : undefined;
      if (value === undefined) throw new RecordError(`${labelOf(row)} is missing`);
      const none = value === null && name !== key;
      return ((rows[row] as Fields)[name] = none
        ? null
        : readValue(value, expected, () => labelOf(row), found));
    });
    if (name === key && /^int/.test(expected as string)) {
      beside[name] = values as number[];
      const rules = `${expected as string} ${more}`;
      found.push({ label: labelOf, values: values as number[], rules, beside });
    }
  }
  return rows;
}

function readValue(
  value: unknown,
  expected: Shape[string],
  label: () => string,
  found: Column[],
): unknown {
  if (typeof expected === 'string') {
    const [type = ''] = expected.split(' ');
    const choices: readonly unknown[] = type.split('|');
    const [fits, wanted] = JUDGES[type] ?? [
      (one: unknown) => choices.includes(one),
      `one of ${choices.join(', ')}`,
    ];
    return fits(value) ? value : refuse(label(), value, wanted);
  }
  if (!Array.isArray(expected)) {
    return readItems([value], expected as Shape, () => `${label()}.`, '', found)[0];
  }
  const [item, rules = ''] = expected as readonly [Words | Shape, Words?];
  if (!Array.isArray(value)) return refuse(label(), value, 'a list');
  const labelOf: Label = (row) => `${label()}[${row}]`;
  if (typeof item === 'object') {
    return readItems(value, item, (row) => `${labelOf(row)}.`, rules, found);
  }
  found.push({ label: labelOf, values: value as number[], rules, beside: {} });
  return value.map((one, row) => readValue(one, item, () => labelOf(row), found));
}

function refuse(label: string, value: unknown, expected: string): never {
  const shown = String(JSON.stringify(value)).slice(0, 40);
  throw new RecordError(`${label} is ${shown}, expected ${expected}`);
}
