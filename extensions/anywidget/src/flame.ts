/** Who asked for memory: a face of the memory view, which its widget asks for when it is opened. */
export { Flame } from '@torch-workbench/views/flame';
