/** The gradient-flow strip over a record file: `?record=<url>&captured=42,43&width=980`. */
import { GRADIENT_FLOW, readRecordAs } from '@torch-workbench/records';
import { mount } from '../src/flow';

const host = document.querySelector<HTMLElement>('#host');
const query = new URLSearchParams(location.search);
const url = query.get('record');
const bytes = url ? await (await fetch(url)).arrayBuffer() : null;
const captured = (query.get('captured') ?? '').split(',').filter(Boolean).map(Number);
const record = bytes && readRecordAs(GRADIENT_FLOW, bytes);
const state = { record, error: query.get('error'), captured };
if (host) {
  host.style.width = `${query.get('width') ?? 980}px`;
  const start = performance.now();
  mount(host, { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() });
  requestAnimationFrame(() =>
    setTimeout(() => (document.title = `${(performance.now() - start).toFixed(0)} ms`)),
  );
  host.addEventListener('workbench:step', (event) => {
    document.body.dataset['went'] = JSON.stringify((event as CustomEvent).detail);
  });
}
