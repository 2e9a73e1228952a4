/** The diff view as a widget: the model carries the bytes of one record, or an error. */
import { GRAPH_DIFF, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/diff';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';

/** A view fills the box it is given; an output cell has no height of its own. */
const HEIGHT = '560px';

function render({ model, el }: RenderProps): () => void {
  el.style.height = HEIGHT;
  return mount(
    el,
    recordStore(model, (bytes) => readRecordAs(GRAPH_DIFF, bytes)),
  );
}

export default { render };
