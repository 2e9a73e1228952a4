import type { ExperimentState } from '@torch-workbench/records';
import type { IConnection } from '../tokens';

/**
 * The experiments that train, the selected one first and then the newest; where none does, one
 * that is paused.
 */
export function running(connection: IConnection | null): readonly ExperimentState[] {
  const experiments = connection?.store?.get().experiments;
  const states = [...(experiments?.values() ?? [])].map((one) => one.state).reverse();
  const isFirst = (one: ExperimentState): number => Number(one.id === connection?.experiment);
  states.sort((a, b) => isFirst(b) - isFirst(a));
  const busy = states.filter(({ status }) => status === 'training');
  return busy.length > 0 ? busy : states.filter(({ status }) => status === 'paused').slice(0, 1);
}
