export { mount, type MemoryViewOptions, type MemoryViewState } from './mount';
export type { Parts } from './part';
