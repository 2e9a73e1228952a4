import { readRecord, RecordError } from '@torch-workbench/records';
import type { Store } from '@torch-workbench/views';
import { mount as mountDiff } from '@torch-workbench/views/diff';
import { mount as mountGraph } from '@torch-workbench/views/graph';
import { mount as mountMemory } from '@torch-workbench/views/memory';

/**
 * Draws the bytes of a record into `node`, by the view that its own schema names; returns what ends
 * it. Throws one sentence when they are no record that has a view.
 */
export function mountRecord(node: HTMLElement, bytes: ArrayBuffer): () => void {
  const record = readRecord(bytes);
  switch (record.schema) {
    case 'workbench.graph/3':
      return mountGraph(node, fixed(record));
    case 'workbench.graph_diff/2':
      return mountDiff(node, fixed(record));
    case 'workbench.memory/1':
      return mountMemory(node, fixed(record));
    default:
      throw new RecordError(`a ${record.schema} record has no view of its own`);
  }
}

/** A record is frozen: its store never changes and takes no commands. */
function fixed<R>(record: R): Store<{ record: R | null; error: string | null }, never> {
  const state = { record, error: null };
  return {
    get: () => state,
    subscribe: () => () => undefined,
    send: (command) => Promise.reject(new Error(`a record takes no command: ${String(command)}`)),
  };
}
