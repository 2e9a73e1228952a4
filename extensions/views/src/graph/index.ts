export { mount, type GraphViewOptions, type GraphViewState } from './mount';
