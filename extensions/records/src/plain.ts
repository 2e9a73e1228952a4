/** The plain fields of a record: JSON compared with the types that the dataclass declares. */
import type { Column } from './check';
import { type ListShape, RecordError, type Shape, type Words } from './schema';

type Fields = Record<string, unknown>;
type Label = (row: number) => string;
type Judge = readonly [fits: (value: unknown) => boolean, expected: string];

/** Half of a pair of code units is no text: it cannot be written as UTF-8. */
const HALF = /\p{Surrogate}/u;
/** A quick look for whole pairs too, as nearly no text has any. */
const ANY_HALF = /[\ud800-\udfff]/;

const JUDGES: Readonly<Record<string, Judge>> = {
  str: [
    (value) => typeof value === 'string' && !(ANY_HALF.test(value) && HALF.test(value)),
    'text in UTF-8',
  ],
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
  const rows: Fields[] = items.map((item, row) =>
    Object(item) === item ? {} : refuse(label(row), item, 'an object'),
  );
  const beside: Record<string, Float64Array> = {};
  for (const [key, expected] of Object.entries(shape)) {
    const name = key.replace('?', '');
    const labelOf: Label = (row) => label(row) + name;
    const values = items.map((item, row) =>
      Object.hasOwn(item as object, name) ? (item as Fields)[name] : missing(labelOf(row)),
    );
    const read = readValues(values, expected, labelOf, name !== key, found);
    read.forEach((value, row) => ((rows[row] as Fields)[name] = value));
    if (name === key && typeof expected === 'string' && expected.startsWith('int')) {
      beside[name] = Float64Array.from(values as number[]);
      found.push({ label: labelOf, values: beside[name], rules: `${expected} ${more}`, beside });
    }
  }
  return rows;
}

/** Values of one field, or of one list: all are to be of the same type. */
function readValues(
  values: readonly unknown[],
  expected: Shape[string],
  label: Label,
  nullable: boolean,
  found: Column[],
): readonly unknown[] {
  if (typeof expected !== 'string') {
    return values.map((value, row) =>
      value === null && nullable ? null : readPart(value, expected, label(row), found),
    );
  }
  const [fits, wanted] = judgeOf(expected.split(' ')[0] ?? '');
  const wrong = values.findIndex((value) => !fits(value) && !(value === null && nullable));
  return wrong < 0 ? values : refuse(label(wrong), values[wrong], wanted);
}

/** A dataclass, or a list. */
function readPart(
  value: unknown,
  expected: Exclude<Shape[string], Words>,
  label: string,
  found: Column[],
): unknown {
  if (!Array.isArray(expected)) {
    return readItems([value], expected as Shape, () => `${label}.`, '', found)[0];
  }
  if (!Array.isArray(value)) return refuse(label, value, 'a list');
  const [item, rules = ''] = expected as ListShape;
  const labelOf: Label = (row) => `${label}[${row}]`;
  if (typeof item !== 'string') {
    return readItems(value, item, (row) => `${labelOf(row)}.`, rules, found);
  }
  const values = readValues(value, item, labelOf, false, found);
  if (rules)
    found.push({
      label: labelOf,
      values: Float64Array.from(values as number[]),
      rules,
      beside: {},
    });
  return values;
}

function judgeOf(type: string): Judge {
  const choices: readonly unknown[] = type.split('|');
  return JUDGES[type] ?? [(value) => choices.includes(value), `one of ${choices.join(', ')}`];
}

function missing(label: string): never {
  throw new RecordError(`${label} is missing`);
}

function refuse(label: string, value: unknown, expected: string): never {
  const shown = String(JSON.stringify(value)).slice(0, 40);
  throw new RecordError(`${label} is ${shown}, expected ${expected}`);
}
