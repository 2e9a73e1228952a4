export { age, bytes, count, oneLine } from './format';
export * from './kernel';
export * from './panel';
export * from './side';
export * from './store';
