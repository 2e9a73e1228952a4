import { PathExt } from '@jupyterlab/coreutils';
import { messageOf } from '@torch-workbench/views';
import { contentsPath } from '../documents/goto';
import type { IRunSummary, WorkbenchServer } from '../server';
import type { IConnection } from '../tokens';

/** What is known of the runs on disk. */
export interface IRunsState {
  runs: readonly IRunSummary[];
  /** The folder they are in, relative to the server's root. */
  root: string;
  /** Why they could not be listed, one sentence; null when they were. */
  error: string | null;
  loading: boolean;
}

/** How often the list is read again while it is in sight. */
const PERIOD_MS = 10_000;

/** The run directories beside the active notebook, as a store for a view. */
export class RunsStore {
  constructor(
    private readonly server: WorkbenchServer,
    private readonly inSight: () => boolean,
  ) {
    this.timer = window.setInterval(() => {
      if (this.inSight()) {
        void this.refresh();
      }
    }, PERIOD_MS);
  }

  get(): IRunsState {
    return this.state;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(): Promise<void> {
    return Promise.reject(new Error('runs on disk take no commands'));
  }

  /** Looks where this notebook's runs are; a change is read at once. */
  follow(connection: IConnection | null): void {
    const root = runsFolder(connection);
    if (root !== this.state.root) {
      this.set({ root, runs: [], error: null, loading: true });
      void this.refresh();
    }
  }

  async refresh(): Promise<void> {
    const { root } = this.state;
    let next: Partial<IRunsState>;
    try {
      next = { runs: await this.server.runs(root), error: null };
    } catch (error) {
      next = { runs: [], error: messageOf(error) };
    }
    if (root === this.state.root) {
      this.set({ ...next, loading: false });
    }
  }

  dispose(): void {
    window.clearInterval(this.timer);
    this.listeners.clear();
  }

  private set(change: Partial<IRunsState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of [...this.listeners]) {
      listener();
    }
  }

  private state: IRunsState = { runs: [], root: '', error: null, loading: true };
  private readonly listeners = new Set<() => void>();
  private readonly timer: number;
}

/** Where the notebook's experiments write; before there is one, `runs` beside the notebook. */
function runsFolder(connection: IConnection | null): string {
  for (const one of connection?.store?.get().experiments.values() ?? []) {
    const run = contentsPath(one.state.run_path);
    if (one.state.run_path !== '' && run !== null) {
      return PathExt.dirname(run);
    }
  }
  return connection === null ? 'runs' : PathExt.join(PathExt.dirname(connection.path), 'runs');
}
