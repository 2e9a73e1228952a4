export { accuracyChart, lossChart, type ChartView } from './metric-chart';
export type { MetricData } from './metric-plot';
export { CATEGORY_LABELS, memoryChart } from './memory-chart';
export { liveMemoryStrip } from './memory-live';
export { liveMemory, type LiveMemory } from './memory-live-data';
export { Sparkline } from './sparkline';
export { highest, isComplete, ScheduleLine } from './schedule-line';
export { StepView } from './step-view';
