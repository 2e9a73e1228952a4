/** Reads a record from a file, which may have been cut short, edited or made up: all is checked. */
import { type Bytes, type Numbers, type Parts, unpack } from './bytes';
import { checkColumn, type Column } from './check';
import { type AnyRecord, FIELDS } from './generated/fields';
import { readItems } from './plain';
import { RecordError, type RecordFields } from './schema';

/** Reads a record of any type; throws one sentence about the first thing that does not hold. */
export function readRecord(bytes: Bytes): AnyRecord {
  const parts = unpack(bytes);
  const fields = FIELDS.get(parts.schema);
  if (!fields) {
    const known = [...FIELDS.keys()].join(', ');
    throw new RecordError(`unknown record schema ${parts.schema}; this version reads: ${known}`);
  }
  try {
    return { schema: parts.schema, ...build(fields, parts) } as AnyRecord;
  } catch (error) {
    if (!(error instanceof RecordError)) throw error;
    throw new RecordError(`damaged ${parts.schema} record: ${error.message}`);
  }
}

/** The fields, each of the type that its dataclass says, and pointing to what is there. */
function build(fields: RecordFields, parts: Parts): object {
  const found: Column[] = [];
  const [plain] = readItems([parts.plain], fields.plain, () => '', '', found);
  const record: Record<string, unknown> = { ...plain };
  const sizes = new Map<string, number>();
  for (const [table, columns] of Object.entries(fields.columns)) {
    const beside: Record<string, Numbers> = {};
    for (const [rest, words] of Object.entries(columns)) {
      const name = table ? `${table}_${rest}` : rest;
      const values = column(parts, name, words);
      record[name] = beside[name] = values;
      if (!sizes.has(table)) sizes.set(table, values.length);
      const rules = table ? `=${table} ${words}` : words;
      found.push({ label: (row) => `${name}[${row}]`, values, rules, beside });
    }
  }
  for (const one of found) checkColumn(one, (name) => sizes.get(name) ?? sizeIn(record, name));
  return record;
}

function column({ columns, dtypes }: Parts, name: string, words: string): Numbers {
  const [dtype] = words.split(' ');
  const values = Object.hasOwn(columns, name) ? columns[name] : undefined;
  if (!values || dtypes[name] !== dtype) {
    throw new RecordError(`${name} is ${dtypes[name] ?? 'missing'}, expected a column of ${dtype}`);
  }
  return values;
}

/** How many there are of what a name in a rule stands for; a number stands for itself. */
function sizeIn(record: Readonly<Record<string, unknown>>, name: string): number {
  const value = record[name];
  return ArrayBuffer.isView(value) || Array.isArray(value)
    ? (value as Numbers).length
    : Number(value ?? name);
}
