export * from './generated';
export * from './read';
export type { RecordType } from './schema';
