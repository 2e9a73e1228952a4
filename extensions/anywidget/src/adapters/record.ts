/** A widget model with the traits `record` (bytes) and `error`, as the store of a record's view. */
import type { Store } from '@torch-workbench/views';
import { messageOf } from '@torch-workbench/views';
import type { RenderProps } from './host';

interface State<R> {
  readonly record: R | null;
  readonly error: string | null;
}

/** Reads the record again whenever it changes; bytes that cannot be read become the error. */
export function recordStore<R>(
  model: RenderProps['model'],
  read: (bytes: ArrayBufferView) => R,
): Store<State<R>, never> {
  const load = (): State<R> => {
    const error = String(model.get('error') ?? '') || null;
    const bytes = model.get('record');
    if (!ArrayBuffer.isView(bytes) || bytes.byteLength === 0) return { record: null, error };
    try {
      return { record: read(bytes), error };
    } catch (reason) {
      return { record: null, error: messageOf(reason) };
    }
  };
  let state = load();
  return {
    get: () => state,
    subscribe: (listener) => {
      const update = (): void => {
        state = load();
        listener();
      };
      model.on('change:record', update);
      model.on('change:error', update);
      return () => {
        model.off('change:record', update);
        model.off('change:error', update);
      };
    },
    send: () => Promise.reject(new Error('a record takes no commands')),
  };
}
