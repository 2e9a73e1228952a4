export { Flame } from './flame';
