export { mountCaptures } from './captures';
export type { DeletedRun } from './deleted-runs';
export { mountExperiments, type ExperimentsOptions } from './experiments';
export { mountModes, type OfExperiment } from './modes';
export { mountRuns, type RunsModel, type RunsOptions, type RunTarget } from './runs';
