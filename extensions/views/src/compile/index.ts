export { mount, type CompileViewState } from './mount';
