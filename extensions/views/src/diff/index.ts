export { mount, open, type DiffViewState } from './mount';
