export { age, bytes, count, oneLine, short } from './format';
export * from './kernel';
export * from './panel';
export * from './side';
export * from './store';
