/** The graph view as a widget: the model carries the bytes of one record, or an error. */
import { GRAPH_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/graph';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';

/** A view fills the box it is given; an output cell has no height of its own. */
const HEIGHT = '520px';

function render({ model, el }: RenderProps): () => void {
  el.style.height = HEIGHT;
  return mount(
    el,
    recordStore(model, (bytes) => readRecordAs(GRAPH_RECORD, bytes)),
  );
}

export default { render };
