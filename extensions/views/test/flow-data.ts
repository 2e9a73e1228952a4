/** A gradient-flow record from norms by row. */
import type { FlowColumns } from '../src/flow';

export function flowOf(
  norms: Record<string, readonly number[]>,
  steps?: readonly number[],
): FlowColumns {
  const values = Object.values(norms);
  const count = values[0]?.length ?? 0;
  return {
    title: 'test',
    device: 'cpu',
    experiment: 'exp-1',
    total_sampled: count,
    notes: [],
    rows: Object.keys(norms).map((label) => ({
      path: label,
      label,
      cls: 'Block',
      num_modules: 1,
      num_parameters: 2,
    })),
    step: steps ?? Array.from({ length: count }, (_, at) => at + 1),
    norm: values.flat(),
  };
}
