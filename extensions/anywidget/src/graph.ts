/** The graph view as a widget: the model carries the bytes of one record, or an error. */
import { GRAPH_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/graph';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';
import { mountWithStrip } from './adapters/strip';

/** A view fills the box it is given; an output cell has no height of its own. */
const HEIGHT = '520px';
const HEIGHT_WITH_STRIP = '680px';

function render({ model, el }: RenderProps): () => void {
  const store = recordStore(model, (bytes) => readRecordAs(GRAPH_RECORD, bytes));
  const flow = model.get('flow');
  const below = ArrayBuffer.isView(flow) && flow.byteLength > 0;
  el.style.height = below ? HEIGHT_WITH_STRIP : HEIGHT;
  return below ? mountWithStrip(model, el, store, flow) : mount(el, store);
}

export default { render };
