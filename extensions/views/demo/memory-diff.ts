/** The diff of two memory record files, without Jupyter: `index.html?a=<url>&b=<url>`. */
import { MEMORY_RECORD, readRecordAs, type MemoryRecord } from '@torch-workbench/records';
import { mount } from '../src/memory-diff';

async function load(url: string | null): Promise<MemoryRecord | null> {
  return url ? readRecordAs(MEMORY_RECORD, await (await fetch(url)).arrayBuffer()) : null;
}

const host = document.querySelector<HTMLElement>('#host');
const query = new URLSearchParams(location.search);
const [a, b] = await Promise.all([load(query.get('a')), load(query.get('b'))]);
const start = performance.now();
const state = { a, b, error: query.get('error') };
if (host)
  mount(host, { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() });
document.title = `${(performance.now() - start).toFixed(0)} ms`;
