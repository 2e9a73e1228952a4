export { mount, type MemoryViewState } from './mount';
