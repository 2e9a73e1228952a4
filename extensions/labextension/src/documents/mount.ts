import type {
  CompareRecord,
  CompileRecord,
  GraphDiff,
  GraphRecord,
  MemoryRecord,
} from '@torch-workbench/records';
import { type CaptureKind, readRecord, RecordError } from '@torch-workbench/records';
import type { Store } from '@torch-workbench/views';
import { type CompareViewState, mount as mountCompare } from '@torch-workbench/views/compare';
import { type CompileViewState, mount as mountCompile } from '@torch-workbench/views/compile';
import { type DiffViewState, open as openDiff } from '@torch-workbench/views/diff';
import {
  type GraphViewState,
  open as openGraph,
  type Shown,
  type Slots,
} from '@torch-workbench/views/graph';
import { type MemoryViewState, mount as mountMemory } from '@torch-workbench/views/memory';

/**
 * What a view of memory may request from its host: answers to questions, and the graph beside it.
 */
export type MemoryHost = Pick<MemoryViewState, 'ask' | 'openModule'>;

/** What a mounted view receives: its record, what it may query, and the colours of another step. */
export interface IRecordState extends Pick<GraphViewState, 'colours'>, MemoryHost {
  readonly record: CompareRecord | CompileRecord | GraphRecord | GraphDiff | MemoryRecord | null;
  readonly error: null;
}

/** What has a view; no compile report and no comparison is a capture of a live kernel. */
type Kind = CaptureKind | 'compile' | 'compare';

interface IView {
  readonly shown: Shown | null;
  reveal?(module: string): void;
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

  /** What is exported as; null for what is not. */
  get kind(): CaptureKind | null {
    return this._kind === 'compile' || this._kind === 'compare' ? null : this._kind;
  }

  /** What a picture is made of; null where nothing is drawn, and of views without pictures. */
  get shown(): Shown | null {
    return this.view?.shown ?? null;
  }

  /**
   * Draws the bytes of a record; one of memory may query its host. Throws one sentence when they are no
   * record that has a view.
   */
  show(bytes: ArrayBuffer, host: MemoryHost = {}): void {
    const record = readRecord(bytes);
    switch (record.schema) {
      case 'workbench.graph/3':
        return this.take(bytes, { record, error: null }, 'graph');
      case 'workbench.graph_diff/2':
        return this.take(bytes, { record, error: null }, 'diff');
      case 'workbench.memory/3':
        return this.take(bytes, { record, error: null, ...host }, 'memory');
      case 'workbench.compile/1':
        return this.take(bytes, { record, error: null }, 'compile');
      case 'workbench.compare/1':
        return this.take(bytes, { record, error: null }, 'compare');
      default:
        throw new RecordError(`a ${record.schema} record has no view of its own`);
    }
  }

  /** Passes the view something besides its record. */
  update(change: Omit<IRecordState, 'record' | 'error'>): void {
    this.set({ ...this.state, ...change });
  }

  /** Selects a module of a graph that is drawn, and brings it into view. */
  reveal(module: string): void {
    this.view?.reveal?.(module);
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

  private take(bytes: ArrayBuffer, state: IRecordState, kind: Kind): void {
    if (kind !== this._kind) {
      this.clear();
    }
    this._bytes = bytes;
    this._kind = kind;
    this.set(state);
    this.view ??= this.open(kind);
  }

  private open(kind: Kind): IView {
    // Which record the state holds is what `kind` says.
    const store = this as Store<unknown, never>;
    const options = { slots: this.slots() };
    switch (kind) {
      case 'graph':
        return new GraphIn(openGraph(this.node, store as Store<GraphViewState, never>, options));
      case 'diff':
        return openDiff(this.node, store as Store<DiffViewState, never>, options);
      case 'memory': {
        const memory = store as Store<MemoryViewState, never>;
        return { shown: null, dispose: mountMemory(this.node, memory, { ...options, ...PARTS }) };
      }
      case 'compile': {
        const report = store as Store<CompileViewState, never>;
        return { shown: null, dispose: mountCompile(this.node, report) };
      }
      case 'compare': {
        const comparison = store as Store<CompareViewState, never>;
        return { shown: null, dispose: mountCompare(this.node, comparison) };
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
  private _kind: Kind | null = null;
  private state: IRecordState = EMPTY;
  private view: IView | null = null;
  private readonly listeners = new Set<() => void>();
}

/** A graph, in which a module can be found by its path. */
class GraphIn implements IView {
  constructor(private readonly view: ReturnType<typeof openGraph>) {}

  get shown(): Shown | null {
    return this.view.shown;
  }

  /** Its container, or, of a module without one, its first operation. */
  reveal(module: string): void {
    const { state } = this.view;
    const group = state?.tree.groups.find(({ kind, path }) => kind === 'module' && path === module);
    const first = state?.operations.find(
      (one) => state.record.modules[one.module]?.path === module,
    );
    const found = group ?? first;
    if (found) {
      this.view.show(found);
    }
  }

  dispose(): void {
    this.view.dispose();
  }
}

/** All of the view is in the extension; only a widget has to request these parts of it. */
const PARTS = {
  whatIf: () => import('@torch-workbench/views/what-if'),
  flame: () => import('@torch-workbench/views/flame'),
};

const EMPTY: IRecordState = { record: null, error: null };
