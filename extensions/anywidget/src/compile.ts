/** The compile report as a widget: the model carries the bytes of one record, or an error. */
import { COMPILE_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/compile';
import { WidgetAsk } from './adapters/ask';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';

/** A view fills the box it is given; an output cell has no height of its own. */
const HEIGHT = '620px';

function render({ model, el }: RenderProps): () => void {
  const store = recordStore(model, (bytes) => readRecordAs(COMPILE_RECORD, bytes));
  const kernel = new WidgetAsk(model);
  const source = async (row: number): Promise<string> => {
    const answer = await kernel.ask({ kind: 'source', kernel: row });
    return String((answer as { code?: unknown }).code ?? '');
  };
  // Nothing compiled is said in a few lines.
  el.style.height = store.get().record?.regions.length ? HEIGHT : 'auto';
  const unmount = mount(el, { ...store, get: withSource(store.get, source) });
  return () => {
    unmount();
    kernel.dispose();
  };
}

/** A state that is the same object as long as its record is: a view draws what is new to it. */
function withSource<S extends object, F>(get: () => S, source: F): () => S & { source: F } {
  let last: S | null = null;
  let made: (S & { source: F }) | null = null;
  return () => {
    const state = get();
    if (state !== last || made === null) made = { ...(last = state), source };
    return made;
  };
}

export default { render };
