import type { MetricData } from '../curves';
import type { ExperimentModel } from '../kernel';

/** What the loss chart draws of an experiment. */
export function lossData({ state, curves }: ExperimentModel, live = false): MetricData {
  return {
    train: curves.get('train/loss'),
    val: curves.get('val/loss'),
    markers: state.markers,
    totalSteps: state.total_steps,
    live: live && state.status === 'training',
    nanFrom: state.failure?.kind === 'nan' ? state.failure.step : null,
  };
}

/** What the accuracy chart draws; null where no accuracy is known. */
export function accuracyData(model: ExperimentModel, live = false): MetricData | null {
  const [train, val] = ['train/accuracy', 'val/accuracy'].map((name) => model.curves.get(name));
  if (!train?.length && !val?.length) return null;
  // of all samples of the epoch so far: there is nothing to smooth
  const asItIs = train && { ...train, smooth: train.values };
  return { ...lossData(model, live), train: asItIs, val, nanFrom: null };
}
