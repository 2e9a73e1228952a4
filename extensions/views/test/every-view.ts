/** Each view that draws on canvases, mounted on a record that stays as it is. */
import { mount as mountDiff } from '../src/diff';
import { mount as mountFlow } from '../src/flow';
import { mount as mountGraph } from '../src/graph';
import { mount as mountMemory } from '../src/memory';
import type { Dispose, Store } from '../src/store';
import { diffOf, EARLY_EXIT } from './diff-data';
import { flowOf } from './flow-data';
import { graphOf, residual } from './graph-data';
import { OPTIONS, STEP } from './memory-data';

const storeOf = <S>(state: S): Store<S, never> => ({
  get: () => state,
  subscribe: () => () => {},
  send: () => Promise.resolve(),
});

export const VIEWS: Record<string, (host: HTMLElement) => Dispose> = {
  graph: (host) => mountGraph(host, storeOf({ record: graphOf(residual(2)), error: null })),
  diff: (host) => mountDiff(host, storeOf({ record: diffOf(EARLY_EXIT), error: null })),
  memory: (host) => mountMemory(host, storeOf({ record: STEP, error: null }), OPTIONS),
  flow: (host) =>
    mountFlow(host, storeOf({ record: flowOf({ body: [1, 2], head: [0, 4] }), error: null })),
};
