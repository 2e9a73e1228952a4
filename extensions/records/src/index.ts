export { readRecord } from './file';
export * from './generated';
export { RecordError, type Schema } from './schema';
export { readRecordAs } from './sent';
