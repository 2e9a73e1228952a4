import {
  GRAPH_RECORD,
  MEMORY_RECORD,
  type GraphRecord,
  type MemoryRecord,
  readRecord,
  readRecordAs,
  RecordError,
} from '@torch-workbench/records';
import type { Store } from '@torch-workbench/views';
import { mount as mountGraph } from '@torch-workbench/views/graph';
import { mount as mountMemory } from '@torch-workbench/views/memory';
import type { CaptureKind } from './choose';

/** Draws the bytes of a record into `node`; throws one sentence when they are not that record. */
export function mountRecord(node: HTMLElement, kind: CaptureKind, bytes: ArrayBuffer): () => void {
  return kind === 'graph'
    ? mountGraph(node, fixed<GraphRecord>(readRecordAs(GRAPH_RECORD, bytes)))
    : mountMemory(node, fixed<MemoryRecord>(readRecordAs(MEMORY_RECORD, bytes)));
}

/** Draws whichever record the bytes are. */
export function mountAnyRecord(node: HTMLElement, bytes: ArrayBuffer): () => void {
  const { schema } = readRecord(bytes);
  if (schema === 'workbench.graph/2' || schema === 'workbench.memory/1') {
    return mountRecord(node, schema === 'workbench.graph/2' ? 'graph' : 'memory', bytes);
  }
  throw new RecordError(`a ${schema} record has no view of its own`);
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
