import type { GraphDiff, GraphRecord, MemoryRecord } from '@torch-workbench/records';
import { type CaptureKind, readRecord, RecordError } from '@torch-workbench/records';
import type { Store } from '@torch-workbench/views';
import { type DiffViewState, open as openDiff } from '@torch-workbench/views/diff';
import {
  type GraphViewState,
  open as openGraph,
  type Shown,
  type Slots,
} from '@torch-workbench/views/graph';
import { type MemoryViewState, mount as mountMemory } from '@torch-workbench/views/memory';

/** What a mounted view is told: its record, and of a graph the colours of another step. */
export interface IRecordState extends Pick<GraphViewState, 'colours'> {
  readonly record: GraphRecord | GraphDiff | MemoryRecord | null;
  readonly error: null;
}

interface IView {
  readonly shown: Shown | null;
  dispose(): void;
}

/**
 * A record on screen, drawn by the view that its own schema names. Another one of the same kind
 * takes its place in the same view, which keeps what a person has opened and chosen.
 */
export class MountedRecord implements Store<IRecordState, never> {
  constructor(
    private readonly node: HTMLElement,
    private readonly slots: () => Slots,
  ) {}

  /** The record as it was read; null before the first one. */
  get bytes(): ArrayBuffer | null {
    return this._bytes;
  }

  get kind(): CaptureKind | null {
    return this._kind;
  }

  /** What a picture is made of; null where nothing is drawn, and of views without pictures. */
  get shown(): Shown | null {
    return this.view?.shown ?? null;
  }

  /** Draws the bytes of a record. Throws one sentence when they are no record that has a view. */
  show(bytes: ArrayBuffer): void {
    const record = readRecord(bytes);
    switch (record.schema) {
      case 'workbench.graph/3':
        return this.take(bytes, record, 'graph');
      case 'workbench.graph_diff/2':
        return this.take(bytes, record, 'diff');
      case 'workbench.memory/2':
        return this.take(bytes, record, 'memory');
      default:
        throw new RecordError(`a ${record.schema} record has no view of its own`);
    }
  }

  /** Tells the view something besides its record. */
  tell(change: Omit<IRecordState, 'record' | 'error'>): void {
    this.set({ ...this.state, ...change });
  }

  clear(): void {
    this.view?.dispose();
    this.view = this._bytes = this._kind = null;
    this.state = EMPTY;
  }

  get(): IRecordState {
    return this.state;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(command: never): Promise<void> {
    return Promise.reject(new Error(`a record takes no command: ${String(command)}`));
  }

  private take(bytes: ArrayBuffer, record: IRecordState['record'], kind: CaptureKind): void {
    if (kind !== this._kind) {
      this.clear();
    }
    this._bytes = bytes;
    this._kind = kind;
    this.set({ record, error: null });
    this.view ??= this.open(kind);
  }

  private open(kind: CaptureKind): IView {
    // Which record the state holds is what `kind` says.
    const store = this as Store<unknown, never>;
    const options = { slots: this.slots() };
    switch (kind) {
      case 'graph':
        return openGraph(this.node, store as Store<GraphViewState, never>, options);
      case 'diff':
        return openDiff(this.node, store as Store<DiffViewState, never>, options);
      case 'memory': {
        const memory = store as Store<MemoryViewState, never>;
        return { shown: null, dispose: mountMemory(this.node, memory, options) };
      }
    }
  }

  private set(state: IRecordState): void {
    this.state = state;
    for (const listener of [...this.listeners]) {
      listener();
    }
  }

  private _bytes: ArrayBuffer | null = null;
  private _kind: CaptureKind | null = null;
  private state: IRecordState = EMPTY;
  private view: IView | null = null;
  private readonly listeners = new Set<() => void>();
}

const EMPTY: IRecordState = { record: null, error: null };
