export * from './channel';
export * from './model';
export { FinalError, KernelStore, type KernelStoreOptions } from './store';
