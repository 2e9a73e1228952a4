/** A comparison of modes as a widget: the model carries the bytes of one record, or an error. */
import { COMPARE_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '@torch-workbench/views/compare';
import type { RenderProps } from './adapters/host';
import { recordStore } from './adapters/record';

function render({ model, el }: RenderProps): () => void {
  return mount(
    el,
    recordStore(model, (bytes) => readRecordAs(COMPARE_RECORD, bytes)),
  );
}

export default { render };
