/** A graph with the gradient flow of its training below: `?record=<graph>&flow=<flow>`. */
import { GRADIENT_FLOW, GRAPH_RECORD, readRecordAs } from '@torch-workbench/records';
import { FlowFoot } from '../src/flow';
import { mount, type GraphViewState } from '../src/graph';

const host = document.querySelector<HTMLElement>('#host');
const query = new URLSearchParams(location.search);
const fetched = async (name: string): Promise<ArrayBuffer> =>
  (await fetch(query.get(name) ?? '')).arrayBuffer();
const record = readRecordAs(GRAPH_RECORD, await fetched('record'));
const flow = readRecordAs(GRADIENT_FLOW, await fetched('flow'));

if (host) {
  const start = performance.now();
  let state: GraphViewState = { record, error: null };
  const listeners = new Set<() => void>();
  const foot = new FlowFoot(host, {
    open: true,
    onToggle: () => undefined,
    goTo: () => false,
    colour: (colours) => {
      state = { ...state, colours };
      for (const listener of listeners) listener();
    },
  });
  const subscribe = (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  const store = { get: () => state, subscribe, send: () => Promise.resolve() };
  mount(host, store, { slots: { foot: foot.element } });
  foot.update({ record: flow, captured: [1, record.step ?? 0], current: record.step });
  document.title = `${(performance.now() - start).toFixed(0)} ms`;
}
