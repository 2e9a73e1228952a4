export * from './channel';
export * from './model';
export { KernelStore, type KernelStoreOptions } from './store';
