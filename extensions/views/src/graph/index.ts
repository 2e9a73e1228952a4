export { mount, open, type GraphViewOptions, type GraphViewState, type Slots } from './mount';
export { pngOf, svgOf, type Shown } from './picture';
