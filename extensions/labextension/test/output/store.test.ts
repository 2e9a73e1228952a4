import { type Command, EMPTY_MODEL, type KernelModel } from '@torch-workbench/views';
import { Signal } from '@lumino/signaling';
import { describe, expect, it } from 'vitest';
import { NotebookStore } from '../../src/output/store';
import type { ConnectionStatus, IConnection } from '../../src/tokens';

const LIVE: KernelModel = {
  ...EMPTY_MODEL,
  connection: 'live',
  experiments: new Map([['a', {} as never]]),
};

/** A kernel's store that says `model` and keeps the commands it is sent. */
class Kernel {
  readonly sent: Command[] = [];
  private readonly listeners = new Set<() => void>();

  constructor(private model: KernelModel) {}

  get = (): KernelModel => this.model;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  send = (command: Command): Promise<void> => {
    this.sent.push(command);
    return Promise.resolve();
  };

  say(model: KernelModel): void {
    this.model = model;
    this.listeners.forEach((listener) => listener());
  }
}

class Notebook {
  store: Kernel | null = null;
  status: ConnectionStatus = 'waiting';
  readonly changed = new Signal<this, void>(this);

  enter(status: ConnectionStatus, store: Kernel | null): void {
    [this.status, this.store] = [status, store];
    this.changed.emit();
  }
}

function follow(notebook: Notebook): NotebookStore {
  return new NotebookStore(notebook as unknown as IConnection);
}

const stop: Command = { name: 'stop', experiment: 'a', args: {} };

describe('NotebookStore', () => {
  it('knows nothing before the channels are open, then what they say', () => {
    const notebook = new Notebook();
    const store = follow(notebook);
    expect(store.get()).toBe(EMPTY_MODEL);
    const kernel = new Kernel(EMPTY_MODEL);
    notebook.enter('open', kernel);
    let notified = 0;
    store.subscribe(() => (notified += 1));
    kernel.say(LIVE);
    expect(store.get()).toBe(LIVE);
    expect(notified).toBe(1);
  });

  it('keeps the last picture of a kernel that was restarted, and follows the next one', async () => {
    const notebook = new Notebook();
    const old = new Kernel(LIVE);
    notebook.enter('open', old);
    const store = follow(notebook);
    notebook.enter('waiting', null);
    expect(store.get().experiments).toBe(LIVE.experiments);
    expect(store.get().connection).toBe('dead');
    await expect(store.send(stop)).rejects.toThrow('kernel restarted: run the cell again');

    const next = new Kernel({ ...LIVE, experiments: new Map() });
    notebook.enter('open', next);
    old.say(LIVE);
    expect(store.get().experiments.size).toBe(0);
    await store.send(stop);
    expect(next.sent).toEqual([stop]);
  });

  it('says when there is no kernel at all', () => {
    const notebook = new Notebook();
    notebook.enter('open', new Kernel(LIVE));
    const store = follow(notebook);
    notebook.enter('none', null);
    expect(store.get().detail).toMatch(/has no kernel/);
  });

  it('hears nothing more once disposed', () => {
    const notebook = new Notebook();
    const kernel = new Kernel(LIVE);
    notebook.enter('open', kernel);
    const store = follow(notebook);
    let notified = 0;
    store.subscribe(() => (notified += 1));
    store.dispose();
    kernel.say(EMPTY_MODEL);
    notebook.enter('waiting', null);
    expect(notified).toBe(0);
    expect(store.get()).toBe(LIVE);
  });
});
