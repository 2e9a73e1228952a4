export { mount, type FlowViewOptions, type FlowViewState, type StepDetail } from './mount';
export { FlowPieces } from './pieces';
export { FlowFoot, type FootHost, type FootState } from './foot';
export type { FlowColumns } from './strip';
