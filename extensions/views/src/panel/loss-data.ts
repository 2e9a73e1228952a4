import type { LossData } from '../curves';
import type { ExperimentModel } from '../kernel';

/** What the loss chart draws of an experiment. */
export function lossData({ state, curves }: ExperimentModel, live = false): LossData {
  return {
    train: curves.get('train/loss'),
    val: curves.get('val/loss'),
    markers: state.markers,
    totalSteps: state.total_steps,
    live: live && state.status === 'training',
    nanFrom: state.failure?.kind === 'nan' ? state.failure.step : null,
  };
}
