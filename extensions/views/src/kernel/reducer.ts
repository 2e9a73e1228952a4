import { MEMORY_CHART, readRecordAs, type ExperimentState } from '@torch-workbench/records';
import type { Buffer, ChannelData } from './channel';
import { applyCurves } from './curves';
import type { ExperimentModel, KernelFacts, KernelModel } from './model';

/**
 * The model after one message of the kernel, or null when the message does not fit what is held:
 * something was lost, and only a snapshot helps. Messages of an unknown type change nothing, so
 * that an older page survives a newer kernel.
 */
export function reduce(
  model: KernelModel,
  message: ChannelData,
  buffers: readonly Buffer[],
): KernelModel | null {
  const key = String(message['experiment'] ?? '');
  const held = model.experiments.get(key);
  switch (message['type']) {
    case 'hello':
      return hello(model, message);
    case 'state': {
      const state = message['state'] as ExperimentState;
      return withExperiment(model, key, {
        ...(held ?? { curves: new Map(), chart: null }),
        state,
      });
    }
    case 'curves': {
      const curves = held && applyCurves(held.curves, message, buffers);
      return held && curves ? withExperiment(model, key, { ...held, curves }) : null;
    }
    case 'chart': {
      if (!held || !buffers[0]) return null;
      const chart = readRecordAs(MEMORY_CHART, buffers[0]);
      return withExperiment(model, key, { ...held, chart });
    }
    case 'removed': {
      const experiments = new Map(model.experiments);
      experiments.delete(key);
      return { ...model, experiments, gone: new Set(model.gone).add(key) };
    }
    default:
      return model;
  }
}

/** The kernel's greeting lists what exists now; everything else about it follows. */
function hello(model: KernelModel, message: ChannelData): KernelModel {
  const ids = message['experiments'] as string[];
  const experiments = new Map<string, ExperimentModel>();
  for (const id of ids) {
    const held = model.experiments.get(id);
    if (held) experiments.set(id, held);
  }
  const kernel = message['kernel'] as KernelFacts;
  return { ...model, connection: 'live', detail: '', kernel, experiments };
}

function withExperiment(model: KernelModel, key: string, value: ExperimentModel): KernelModel {
  return { ...model, experiments: new Map(model.experiments).set(key, value) };
}

/** The same; a damaged message must not end the stream of good ones. */
export function reduceSafely(
  model: KernelModel,
  message: ChannelData,
  buffers: readonly Buffer[],
): KernelModel | null {
  try {
    return reduce(model, message, buffers);
  } catch (error) {
    console.warn('workbench: a message could not be read', error);
    return model;
  }
}
