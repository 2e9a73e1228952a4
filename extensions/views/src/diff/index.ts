export { mount, type DiffViewState } from './mount';
