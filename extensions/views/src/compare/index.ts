export { mount, type CompareViewState } from './mount';
