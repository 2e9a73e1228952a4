/** Reads a record that the kernel sent: Python made it, or has checked it when it opened a file. */
import { type Bytes, unpack } from './bytes';
import { RecordError, type Schema } from './schema';

/** Reads a record that must be of one type: `readRecordAs(GRAPH_RECORD, bytes)`. */
export function readRecordAs<R>(wanted: Schema<R>, bytes: Bytes): R {
  const { schema, plain, columns } = unpack(bytes);
  if (schema !== wanted) throw new RecordError(`expected a ${wanted} record, got ${schema}`);
  return { ...Object(plain), ...columns, schema } as R;
}
