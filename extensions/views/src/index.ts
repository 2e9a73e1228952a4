export { h } from './dom';
export { messageOf } from './errors';
export { age, bytes, count, duration, oneLine, short } from './format';
export * from './kernel';
export * from './panel';
export { remember, remembered } from './remembered';
export * from './side';
export * from './store';
