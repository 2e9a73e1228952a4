export { mount, type FlowViewState, type StepDetail } from './view';
export type { FlowColumns } from './strip';
