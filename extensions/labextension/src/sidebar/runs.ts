import { PathExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { messageOf } from '@torch-workbench/views';
import { type IDeletedRun, type IRunSummary, ServerError, type WorkbenchServer } from '../server';
import type { IConnection } from '../tokens';

/** What is known of the runs on disk. */
export interface IRunsState {
  runs: readonly IRunSummary[];
  /** Those that were deleted and can be put back. */
  deleted: readonly IDeletedRun[];
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
    private readonly trans: TranslationBundle,
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
    const folder = runsFolder(connection);
    if (folder !== this.folder) {
      this.folder = folder;
      this.set({ root: '', runs: [], deleted: [], error: null, loading: true });
      void this.refresh();
    }
  }

  async refresh(): Promise<void> {
    const { folder } = this;
    const reading = ++this.readings;
    let next: Partial<IRunsState>;
    try {
      const root = await this.server.contentsPath(folder);
      if (root === null) {
        throw new Error(
          this.trans.__('The runs are in %1, outside the folder that Jupyter serves.', folder),
        );
      }
      const { runs, deleted } = await this.server.runs(root);
      next = { root, runs, deleted, error: null };
    } catch (error) {
      next = { runs: [], deleted: [], error: messageOf(error) };
    }
    if (reading === this.readings) {
      this.set({ ...next, loading: false }); // else a later reading knows of what came between
    }
  }

  /** A run as its kernel names it. */
  kernelPath(run: IRunSummary): string {
    const { root } = this.state;
    const below = run.path.slice(root === '' ? 0 : root.length + 1);
    return `${this.folder.replace(/\/$/, '')}/${below}`;
  }

  /** What can be done with a run has changed, though the runs have not. */
  targetChanged(): void {
    this.set({});
  }

  /** Deletes a run so that `restore` can put it back. */
  delete(run: IRunSummary): Promise<void> {
    return this.change(
      () => this.server.deleteRun(run.path),
      this.trans.__('%1 no longer exists: it was deleted or moved.', run.name),
    );
  }

  /** Puts a run back; resolves to where it is again. */
  restore(run: IDeletedRun): Promise<string> {
    return this.change(
      () => this.server.restoreRun(run.path),
      this.trans.__('%1 was already restored or removed.', run.name),
    );
  }

  /** Changes the folder and reads it again, whatever came of it. */
  private async change<T>(act: () => Promise<T>, gone: string): Promise<T> {
    try {
      return await act();
    } catch (error) {
      const isGone = error instanceof ServerError && error.isOurs && error.status === 404;
      throw isGone ? new Error(gone) : error;
    } finally {
      await this.refresh();
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

  private folder = '';
  private readings = 0;
  private state: IRunsState = { runs: [], deleted: [], root: '', error: null, loading: true };
  private readonly listeners = new Set<() => void>();
  private readonly timer: number;
}

/**
 * Where the selected experiment writes, as its kernel names it; before there is one, `runs` beside
 * the notebook, as the server names it.
 */
function runsFolder(connection: IConnection | null): string {
  const experiments = connection?.store?.get().experiments;
  const selected = experiments?.get(connection?.experiment ?? '');
  const all = [...(selected ? [selected] : []), ...(experiments?.values() ?? [])];
  const run = all.find(({ state }) => state.run_path !== '')?.state.run_path;
  if (run !== undefined) {
    return run.slice(0, run.lastIndexOf('/')) || '/'; // PathExt takes the first slash away
  }
  return connection === null ? 'runs' : PathExt.join(PathExt.dirname(connection.path), 'runs');
}
