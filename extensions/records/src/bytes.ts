/**
 * The bytes of a record: a safetensors file whose arrays are the record's columns and whose
 * metadata holds everything else (see `workbench/records/base.py`).
 */
import { RecordError } from './schema';

export type Bytes = ArrayBuffer | ArrayBufferView;
export type Numbers = Uint8Array | Int32Array | Float32Array | Float64Array;

/** A record's parts as they lie in the bytes. */
export interface Parts {
  readonly schema: string;
  readonly plain: unknown;
  readonly columns: Readonly<Record<string, Numbers>>;
  /** safetensors' name of the element type of every column. */
  readonly dtypes: Readonly<Record<string, string>>;
}

/** safetensors' entry of a column; what a file says here may be anything. */
interface Entry {
  readonly dtype: string;
  readonly shape: readonly [count: number];
  readonly data_offsets: readonly [start: number, end: number];
}

/** The arrays of columns, by safetensors' names of their element types. */
const ARRAYS: Readonly<
  Record<string, { new (buffer: ArrayBuffer): Numbers; BYTES_PER_ELEMENT: number }>
> = { U8: Uint8Array, I32: Int32Array, I64: Float64Array, F32: Float32Array, F64: Float64Array };

/** Takes bytes apart. Nothing is made before its size is known to lie within them. */
export function unpack(source: Bytes): Parts {
  const bytes = asBytes(source);
  // The size of the header takes eight bytes.
  const size = bytes.slice(0, 8).reduceRight((sum, byte) => sum * 256 + byte, 0);
  if (bytes.length < 8 || 8 + size > bytes.length) {
    throw foreign(`it has ${bytes.length} bytes, which cannot hold its header`);
  }
  const header = parse(bytes.subarray(8, 8 + size));
  const { __metadata__: metadata, ...entries } = Object(header) as Record<string, unknown>;
  const { schema, record = '' } = Object(metadata) as Record<string, string>;
  const columns: Record<string, Numbers> = {};
  const dtypes: Record<string, string> = {};
  for (const [name, entry] of Object.entries(entries)) {
    columns[name] = readColumn(name, entry as Entry, bytes.subarray(8 + size));
    dtypes[name] = (entry as Entry).dtype;
  }
  return { schema: String(schema), plain: parse(record), columns, dtypes };
}

function asBytes(bytes: Bytes): Uint8Array {
  return ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
}

function parse(text: string | Uint8Array): unknown {
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true });
    return JSON.parse(typeof text === 'string' ? text : decoder.decode(text));
  } catch {
    throw foreign('what should be JSON in UTF-8 is not');
  }
}

function readColumn(name: string, entry: Entry, data: Uint8Array): Numbers {
  const { dtype, shape, data_offsets } = Object(entry) as Entry;
  const ArrayType = ARRAYS[dtype];
  if (!ArrayType || !isCounts(shape, 1) || !isCounts(data_offsets, 2)) {
    throw foreign(`${name} is ${JSON.stringify(entry).slice(0, 80)}, which is no column`);
  }
  const [start, end] = data_offsets;
  const [count] = shape;
  if (end > data.length || end - start !== count * ArrayType.BYTES_PER_ELEMENT) {
    throw foreign(`its column ${name} is cut short`);
  }
  // A copy: the message's buffer may be huge, and its offset need not fit the element's width.
  const { buffer } = data.slice(start, end);
  return dtype === 'I64' ? fromInt64(buffer, count) : new ArrayType(buffer);
}

function isCounts(value: unknown, length: number): boolean {
  return (
    Array.isArray(value) &&
    value.length === length &&
    value.every((one) => Number.isSafeInteger(one) && one >= 0)
  );
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

function foreign(why: string): RecordError {
  return new RecordError(`not a Workbench record: ${why}`);
}
