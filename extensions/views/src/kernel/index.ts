export * from './channel';
export * from './model';
export { curveOf } from './curves';
export { KernelStore, type KernelStoreOptions } from './store';
export { isOfMemory, keptRows, thin } from './thin';
