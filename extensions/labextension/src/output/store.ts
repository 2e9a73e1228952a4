import { type Command, EMPTY_MODEL, type KernelModel, type Store } from '@torch-workbench/views';
import type { IConnection } from '../tokens';

const RESTARTED = 'kernel restarted: run the cell again';
const NO_KERNEL = 'this notebook has no kernel: start one and run the cell again';

/**
 * A notebook's kernel as a panel in one of its cells sees it, through every channel the notebook
 * ever has. When the kernel is gone the last picture stays, and `detail` says what to do.
 */
export class NotebookStore implements Store<KernelModel, Command> {
  constructor(private readonly connection: IConnection) {
    connection.changed.connect(this.follow, this);
    this.follow();
  }

  get(): KernelModel {
    return this.model;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(command: Command): Promise<void> {
    const { store } = this.connection;
    return store ? store.send(command) : Promise.reject(new Error(this.model.detail));
  }

  dispose(): void {
    this.connection.changed.disconnect(this.follow, this);
    this.stop();
    this.listeners.clear();
  }

  private follow(): void {
    const { store, status } = this.connection;
    if (store !== this.followed || store === null) {
      this.stop();
      this.followed = store;
      this.stop = store?.subscribe(() => this.show(store.get())) ?? (() => undefined);
    }
    if (store !== null) {
      this.show(store.get());
    } else if (this.model !== EMPTY_MODEL) {
      const detail = status === 'none' ? NO_KERNEL : RESTARTED;
      this.show({ ...this.model, connection: 'dead', detail });
    }
  }

  private show(model: KernelModel): void {
    this.model = model;
    for (const listener of [...this.listeners]) {
      listener();
    }
  }

  private model: KernelModel = EMPTY_MODEL;
  private followed: IConnection['store'] = null;
  private stop: () => void = () => undefined;
  private readonly listeners = new Set<() => void>();
}
