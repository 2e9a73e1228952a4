export { mount, type MemoryViewState } from './view';
