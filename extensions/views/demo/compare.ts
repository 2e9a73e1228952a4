/** The comparison of a record file, without Jupyter: `index.html?record=<url>`. */
import { COMPARE_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '../src/compare';

const host = document.querySelector<HTMLElement>('#host');
const query = new URLSearchParams(location.search);
const url = query.get('record');
const bytes = url === null ? null : await (await fetch(url)).arrayBuffer();
const start = performance.now();
const record = bytes && readRecordAs(COMPARE_RECORD, bytes);
const state = { record, error: query.get('error') };
if (host) {
  mount(host, { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() });
  host.addEventListener('workbench:open', (event) => {
    document.body.dataset['asked'] = JSON.stringify((event as CustomEvent<unknown>).detail);
  });
  host.getBoundingClientRect();
}
document.title = `${(performance.now() - start).toFixed(0)} ms`;
