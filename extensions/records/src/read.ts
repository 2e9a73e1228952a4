/**
 * Reads the bytes of a record: a safetensors file whose arrays are the record's columns and whose
 * metadata holds everything else (see `workbench/records/base.py`).
 */
import { RECORD_TYPES } from './generated';
import type { RecordType } from './schema';

/** The record that a `RecordType` describes. */
export type RecordOf<T> = T extends RecordType<infer R> ? R : never;
export type AnyRecord = RecordOf<(typeof RECORD_TYPES)[number]>;

/** Bytes that are not a record this version can read; the message is one sentence. */
export class RecordError extends Error {
  override readonly name = 'RecordError';
}

interface Entry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** safetensors' name and the width in bytes of every element type a column may have. */
const ELEMENTS: Record<string, { readonly name: string; readonly width: number }> = {
  uint8: { name: 'U8', width: 1 },
  int32: { name: 'I32', width: 4 },
  int64: { name: 'I64', width: 8 },
  float32: { name: 'F32', width: 4 },
  float64: { name: 'F64', width: 8 },
};

/** Reads a record of any type. It carries all types into a bundle: a widget names its own. */
export function readRecord(bytes: ArrayBuffer | ArrayBufferView): AnyRecord {
  return readOneOf(RECORD_TYPES, bytes);
}

/** Reads a record that must be of one type: `readRecordAs(GRAPH_RECORD, bytes)`. */
export function readRecordAs<R extends { readonly schema: string }>(
  type: RecordType<R>,
  bytes: ArrayBuffer | ArrayBufferView,
): R {
  return readOneOf([type], bytes);
}

/** Reads a record of one of the types: `readOneOf([GRAPH_RECORD, GRAPH_DIFF], bytes)`. */
export function readOneOf<T extends readonly RecordType[]>(
  types: T,
  bytes: ArrayBuffer | ArrayBufferView,
): RecordOf<T[number]> {
  const { header, data } = readHeader(asBytes(bytes));
  const metadata = header['__metadata__'] as Record<string, string> | undefined;
  const schema = metadata?.['schema'];
  const type = types.find((one) => one.schema === schema);
  if (!type) {
    const known = types.map((one) => one.schema).join(' or ');
    throw new RecordError(`expected a ${known} record, got ${String(schema)}`);
  }
  const values = readPlain(metadata?.['record'], type);
  const record: Record<string, unknown> = { schema, ...values };
  for (const [name, dtype] of Object.entries(type.columns)) {
    record[name] = readColumn(data, header[name] as Entry | undefined, name, dtype);
  }
  return record as RecordOf<T[number]>;
}

function asBytes(bytes: ArrayBuffer | ArrayBufferView): Uint8Array {
  return ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
}

function readHeader(bytes: Uint8Array): { header: Record<string, unknown>; data: Uint8Array } {
  if (bytes.length < 8) {
    throw new RecordError(`not a Workbench record: only ${bytes.length} bytes`);
  }
  const words = new DataView(bytes.buffer, bytes.byteOffset, 8);
  const size = words.getUint32(0, true) + words.getUint32(4, true) * 2 ** 32;
  if (size > bytes.length - 8) {
    throw new RecordError('not a Workbench record: the header is longer than the file');
  }
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + size)));
  } catch {
    throw new RecordError('not a Workbench record: the header is not JSON');
  }
  if (typeof header !== 'object' || header === null) {
    throw new RecordError('not a Workbench record: the header is not an object');
  }
  return { header: header as Record<string, unknown>, data: bytes.subarray(8 + size) };
}

function readPlain(
  text: string | undefined,
  { schema, plain }: RecordType,
): Record<string, unknown> {
  let values: Record<string, unknown>;
  try {
    values = Object(JSON.parse(text ?? '')) as Record<string, unknown>;
  } catch {
    throw new RecordError(`damaged ${schema} record: its plain fields are not JSON`);
  }
  const missing = plain.find((name) => !Object.hasOwn(values, name));
  if (missing !== undefined) {
    throw new RecordError(`damaged ${schema} record: the field ${missing} is missing`);
  }
  return values;
}

function readColumn(
  data: Uint8Array,
  entry: Entry | undefined,
  name: string,
  dtype: string,
): Uint8Array | Int32Array | Float32Array | Float64Array {
  const element = ELEMENTS[dtype];
  if (!entry || !element || entry.dtype !== element.name) {
    throw new RecordError(`damaged record: column ${name} should be ${dtype}, got ${entry?.dtype}`);
  }
  const { shape, data_offsets } = entry;
  if (!isCounts(shape) || !isCounts(data_offsets) || data_offsets.length !== 2) {
    throw new RecordError(`damaged record: column ${name} has no shape or place`);
  }
  const [start, end] = data_offsets;
  const count = shape.reduce((product, size) => product * size, 1);
  if (end > data.length || end - start !== count * element.width) {
    throw new RecordError(`damaged record: column ${name} is cut short`);
  }
  // A copy: the message's buffer may be huge, and its offset need not fit the element's width.
  const bytes = data.slice(start, end);
  switch (dtype) {
    case 'uint8':
      return bytes;
    case 'int32':
      return new Int32Array(bytes.buffer);
    case 'float32':
      return new Float32Array(bytes.buffer);
    case 'float64':
      return new Float64Array(bytes.buffer);
    default:
      return fromInt64(bytes.buffer, count);
  }
}

function isCounts(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => Number.isSafeInteger(one) && one >= 0);
}

/** int64 as doubles, exact below 2^53; two 32-bit reads are ten times faster than BigInt. */
function fromInt64(buffer: ArrayBuffer, count: number): Float64Array {
  const low = new Uint32Array(buffer);
  const high = new Int32Array(buffer);
  const values = new Float64Array(count);
  for (let i = 0; i < count; i += 1) {
    values[i] = (high[2 * i + 1] as number) * 2 ** 32 + (low[2 * i] as number);
  }
  return values;
}
