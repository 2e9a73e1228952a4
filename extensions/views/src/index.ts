export * from './kernel';
export * from './store';
export * from './panel';
