export { lossChart, type ChartView } from './loss-chart';
export type { LossData } from './loss-plot';
export { CATEGORY_LABELS, memoryChart } from './memory-chart';
export { Sparkline } from './sparkline';
