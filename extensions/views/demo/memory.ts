/**
 * The memory view over a record file, without Jupyter: `index.html?record=<url>`. A page that has a
 * function `ask` lets the row "What if?" call it.
 */
import { MEMORY_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount, type MemoryViewState } from '../src/memory';
import { open } from './graph-page';

type Answer = Record<string, unknown>;
const { ask } = window as { ask?: (question: object) => Promise<Answer> };

async function answered(question: object): Promise<Answer> {
  const answer = await (ask?.(question) ?? Promise.reject(new Error('No kernel is available.')));
  if (typeof answer['error'] === 'string') throw new Error(answer['error']);
  return answer;
}

void open(
  (bytes) => readRecordAs(MEMORY_RECORD, bytes),
  (el, store) => {
    const state = (): MemoryViewState => ({ ...store.get(), ...(ask ? { ask: answered } : {}) });
    return mount(
      el,
      { ...store, get: state },
      { whatIf: () => import('../src/what-if'), flame: () => import('../src/flame') },
    );
  },
);
