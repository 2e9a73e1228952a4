/** The diff of two memory records as a widget: the model carries the bytes of both, or an error. */
import { MEMORY_RECORD, readRecordAs } from '@torch-workbench/records';
import type { MemoryRecord } from '@torch-workbench/records';
import { messageOf } from '@torch-workbench/views';
import { mount, type MemoryDiffState } from '@torch-workbench/views/memory-diff';
import type { RenderProps } from './adapters/host';

/** A view fills the box it is given; an output cell has no height of its own. */
const HEIGHT = '720px';

function render({ model, el }: RenderProps): () => void {
  el.style.height = HEIGHT;
  const read = (name: 'a' | 'b'): MemoryRecord | null => {
    const bytes = model.get(name);
    const there = ArrayBuffer.isView(bytes) && bytes.byteLength > 0;
    return there ? readRecordAs(MEMORY_RECORD, bytes) : null;
  };
  const load = (): MemoryDiffState => {
    const error = String(model.get('error') ?? '') || null;
    try {
      return { a: read('a'), b: read('b'), error };
    } catch (reason) {
      const said = messageOf(reason);
      return { a: null, b: null, error: said };
    }
  };
  // A diff does not change: what it is of was recorded before.
  const state = load();
  return mount(el, {
    get: () => state,
    subscribe: () => () => {},
    send: () => Promise.reject(new Error('a diff cannot be sent commands')),
  });
}

export default { render };
