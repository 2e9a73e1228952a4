export { mount, type MemoryDiffState } from './mount';
export { csvOf } from './csv';
export { Pair } from './pair';
