/** The gradient-flow strip as a widget: the model carries the bytes of one record, or an error. */
import { GRADIENT_FLOW, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/flow';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';

function render({ model, el }: RenderProps): () => void {
  return mount(
    el,
    recordStore(model, (bytes) => readRecordAs(GRADIENT_FLOW, bytes)),
  );
}

export default { render };
