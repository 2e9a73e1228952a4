export * from './kernel';
export * from './store';
