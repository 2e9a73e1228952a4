/**
 * Which code allocated memory: a face of the memory view, which its widget requests when it is
 * opened.
 */
export { Flame } from '@torch-workbench/views/flame';
