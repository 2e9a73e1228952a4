export type { OpenRequest } from './context';
export type { InlineView } from './inline';
export { mountPanel, type PanelOptions } from './panel';
