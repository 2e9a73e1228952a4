/** The memory view as a widget: the model carries the bytes of one record, or an error. */
import { MEMORY_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/memory';
import { WidgetAsk } from './adapters/ask';
import { bundleOf } from './adapters/bundle';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';

/** A view fills the box it is given; an output cell has no height of its own. */
const HEIGHT = '520px';

function render({ model, el }: RenderProps): () => void {
  el.style.height = HEIGHT;
  const store = recordStore(model, (bytes) => readRecordAs(MEMORY_RECORD, bytes));
  const kernel = new WidgetAsk(model);
  const unmount = mount(
    el,
    { ...store, get: () => ({ ...store.get(), ask: kernel.ask }) },
    { whatIf: () => part(model, 'what_if'), flame: () => part(model, 'flame') },
  );
  return () => {
    unmount();
    kernel.dispose();
  };
}

/** A part of the view that many never open: the kernel sends it when one does. */
async function part<M>(model: RenderProps['model'], name: 'what_if' | 'flame'): Promise<M> {
  return (await bundleOf<M>(model, name)).module;
}

export default { render };
