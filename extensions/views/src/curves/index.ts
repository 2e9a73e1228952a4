export { lossChart, type ChartView } from './loss-chart';
export type { LossData } from './loss-plot';
export { CATEGORY_LABELS, memoryChart } from './memory-chart';
export { liveMemoryStrip } from './memory-live';
export { liveMemory, type LiveMemory } from './memory-live-data';
export { Sparkline } from './sparkline';
export { highest, isComplete, ScheduleLine } from './schedule-line';
