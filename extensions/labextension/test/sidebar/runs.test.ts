import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it, vi } from 'vitest';
import {
  type IDeletedRun,
  type IRunSummary,
  ServerError,
  type WorkbenchServer,
} from '../../src/server';
import { RunsStore } from '../../src/sidebar/runs';
import type { IConnection } from '../../src/tokens';

const RUN = { name: 'a', path: 'work/deep/a' };

function served(paths: Record<string, string | null>) {
  const server = {
    contentsPath: (name: string) =>
      Promise.resolve(name.startsWith('/') ? (paths[name] ?? null) : name),
    runs: vi.fn((root: string) =>
      Promise.resolve({ runs: root === 'work/deep' ? [RUN] : [], deleted: [] as IDeletedRun[] }),
    ),
    deleteRun: vi.fn(() => Promise.resolve()),
    restoreRun: vi.fn(() => Promise.resolve('work/deep/a')),
  };
  const trans = nullTranslator.load('');
  const store = new RunsStore(server as unknown as WorkbenchServer, () => false, trans);
  return { server, store };
}

function notebook(path: string, runs: Record<string, string> = {}, selected?: string): IConnection {
  const experiments = new Map(
    Object.entries(runs).map(([id, run_path]) => [id, { state: { run_path } }]),
  );
  return {
    path,
    experiment: selected ?? null,
    store: { get: () => ({ experiments }) },
  } as unknown as IConnection;
}

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

describe('the runs of a notebook', () => {
  it('are where its experiment writes, whatever the kernel calls that', async () => {
    const { store, server } = served({ '/home/me/alias/deep': 'work/deep' });
    store.follow(notebook('x.ipynb', { e: '/home/me/alias/deep/a' }));
    await settled();
    expect(store.get()).toMatchObject({ root: 'work/deep', runs: [RUN], error: null });
    store.follow(notebook('x.ipynb', { e: '/home/me/alias/deep/a' }));
    await settled();
    expect(server.runs).toHaveBeenCalledOnce();
    store.dispose();
  });

  it('are of the experiment that is selected', async () => {
    const { store } = served({ '/r/one': 'one', '/r/work/deep': 'work/deep' });
    const both = { first: '/r/one/a', second: '/r/work/deep/a' };
    store.follow(notebook('x.ipynb', both, 'second'));
    await settled();
    expect(store.get().root).toBe('work/deep');
    store.follow(notebook('x.ipynb', both, 'first'));
    await settled();
    expect(store.get()).toMatchObject({ root: 'one', runs: [] });
    store.dispose();
  });

  it('are beside it before there is an experiment', async () => {
    const { store } = served({});
    store.follow(notebook('work/x.ipynb'));
    await settled();
    expect(store.get()).toMatchObject({ root: 'work/runs', error: null, loading: false });
    store.dispose();
  });

  it('that cannot be reached are said to be where they are', async () => {
    const { store } = served({});
    store.follow(notebook('x.ipynb', { e: '/scratch/me/a' }));
    await settled();
    expect(store.get().error).toMatch(/are in \/scratch\/me, outside the folder that Jupyter/);
    expect(store.get().runs).toEqual([]);
    store.dispose();
  });

  it('of a notebook that was left meanwhile are not shown in the next one', async () => {
    const { store } = served({ '/r/work/deep': 'work/deep' });
    store.follow(notebook('x.ipynb', { e: '/r/work/deep/a' }));
    store.follow(notebook('other/y.ipynb'));
    await settled();
    expect(store.get()).toMatchObject({ root: 'other/runs', runs: [] });
    store.dispose();
  });
});

describe('deleting a run', () => {
  const run = RUN as IRunSummary;
  const kept: IDeletedRun = { path: 'work/deep/.kept/a', name: 'a', removed_at: 1 };

  async function opened() {
    const { store, server } = served({ '/r/work/deep': 'work/deep' });
    store.follow(notebook('x.ipynb', { e: '/r/work/deep/b' }));
    await settled();
    return { store, server };
  }

  it('shows at once what the folder holds then, and the same for Undo', async () => {
    const { store, server } = await opened();
    server.runs.mockResolvedValueOnce({ runs: [], deleted: [kept] });
    await store.delete(run);
    expect(server.deleteRun).toHaveBeenCalledExactlyOnceWith('work/deep/a');
    expect(store.get()).toMatchObject({ runs: [], deleted: [kept] });
    expect(await store.restore(kept)).toBe('work/deep/a');
    expect(server.restoreRun).toHaveBeenCalledExactlyOnceWith(kept.path);
    expect(store.get()).toMatchObject({ runs: [RUN], deleted: [] });
    store.dispose();
  });

  it('that another window has done before is said, and the list is read again', async () => {
    const { store, server } = await opened();
    const gone = new ServerError('"work/deep/a" is not there', 404, true);
    server.deleteRun.mockRejectedValueOnce(gone);
    server.restoreRun.mockRejectedValueOnce(gone);
    await expect(store.delete(run)).rejects.toThrow(/^a no longer exists/);
    await expect(store.restore(kept)).rejects.toThrow('a was already restored or removed.');
    expect(server.runs).toHaveBeenCalledTimes(3);
    store.dispose();
  });

  it('that is refused says what the server says', async () => {
    const { store, server } = await opened();
    const why = 'a is training: stop it first.';
    server.deleteRun.mockRejectedValueOnce(new ServerError(why, 409, true));
    await expect(store.delete(run)).rejects.toThrow(why);
    store.dispose();
  });

  it('is not taken back by a list that was requested before', async () => {
    const { store, server } = await opened();
    let answer: (found: Awaited<ReturnType<typeof server.runs>>) => void = () => undefined;
    server.runs.mockReturnValueOnce(new Promise((resolve) => (answer = resolve)));
    const early = store.refresh();
    await settled();
    server.runs.mockResolvedValueOnce({ runs: [], deleted: [kept] });
    await store.delete(run);
    answer({ runs: [RUN], deleted: [] });
    await early;
    expect(store.get()).toMatchObject({ runs: [], deleted: [kept] });
    store.dispose();
  });
});
