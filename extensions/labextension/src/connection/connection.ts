import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { KernelStore } from '@torch-workbench/views';
import type { ConnectionStatus, IConnection, IWorkbenchSettings } from '../tokens';
import { CommChannel, forgetSubshells, keepSubshells, keepSubshellsOfWidgets } from './channel';
import { PacedStore } from './paced';
import { acceptAnnouncement, isAnnounced, isAnnouncement, mentionsWorkbench } from './presence';

/**
 * One notebook's live connection.
 *
 * It follows the notebook's session through every kernel it ever has: the channels are opened when
 * Workbench is there, and opened anew after a restart or an interruption of the network. Nothing
 * is ever executed in the user's kernel.
 */
export class Connection implements IConnection {
  readonly changed: Signal<IConnection, void> = new Signal(this);

  constructor(
    readonly panel: NotebookPanel,
    private readonly settings: IWorkbenchSettings,
  ) {
    const session = panel.sessionContext;
    session.kernelChanged.connect(this.onKernelChanged, this);
    session.statusChanged.connect(this.onStatusChanged, this);
    session.connectionStatusChanged.connect(this.onConnectionChanged, this);
    session.iopubMessage.connect(this.onMessage, this);
    panel.context.pathChanged.connect(this.onPathChanged, this);
    this.attach(session.session?.kernel ?? null);
  }

  get path(): string {
    return this.panel.context.path;
  }

  get kernelId(): string | null {
    return this.kernel?.id ?? null;
  }

  get status(): ConnectionStatus {
    return this._status;
  }

  get detail(): string {
    return this._status === 'waiting' ? (this.raw?.get().detail ?? '') : '';
  }

  get store(): PacedStore | null {
    return this._status === 'open' || this._status === 'lost' ? this.paced : null;
  }

  get experiment(): string | null {
    const ids = [...(this.store?.get().experiments.keys() ?? [])];
    return ids.includes(this.chosen ?? '') ? this.chosen : (ids.at(-1) ?? null);
  }

  select(experiment: string): void {
    this.chosen = experiment;
    this.notifySelection();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      this.drop();
      Signal.clearData(this);
    }
  }

  private onPathChanged(): void {
    this.changed.emit();
  }

  private attach(kernel: Kernel.IKernelConnection | null): void {
    this.kernel = kernel;
    this.process = null;
    this.enter(kernel === null ? 'none' : 'waiting');
    if (kernel !== null) {
      acceptAnnouncement(kernel);
      keepSubshellsOfWidgets(kernel);
      void this.openIfThere(kernel);
    }
  }

  /** After a page was loaded the kernel may have had Workbench for hours. */
  private async openIfThere(kernel: Kernel.IKernelConnection): Promise<void> {
    await this.panel.context.ready;
    if (mentionsWorkbench(this.panel) || (await isAnnounced(kernel))) {
      this.open();
    } else if (kernel === this.kernel && this.raw === null) {
      this.enter('absent');
    }
  }

  private open(): void {
    const kernel = this.kernel;
    if (kernel === null || this.raw !== null || this._isDisposed) {
      return;
    }
    const store = new KernelStore({ connect: (client) => CommChannel.open(kernel, client) });
    this.raw = store;
    this.paced = new PacedStore(store, this.settings);
    this.paced.subscribe(() => this.notifySelection());
    store.subscribe(() => this.follow(store));
  }

  /** The channel counts as open when the kernel has spoken: a refusal is a close right away. */
  private follow(store: KernelStore): void {
    const { connection } = store.get();
    if (this.raw !== store) {
      return;
    }
    if (connection === 'dead') {
      this.drop();
      this.enter(this.kernel === null ? 'none' : 'absent');
    } else if (connection === 'live' || this._status === 'open') {
      this.enter(connection === 'live' ? 'open' : 'lost');
      this.notifySelection();
    } else {
      this.changed.emit();
    }
  }

  private drop(): void {
    const { raw, paced } = this;
    this.raw = this.paced = null;
    paced?.dispose();
    raw?.dispose();
  }

  /** JupyterLab says so at the end of a restart, too, when nothing can be there yet. */
  private onKernelChanged(): void {
    const kernel = this.panel.sessionContext.session?.kernel ?? null;
    if (kernel === null || kernel !== this.kernel) {
      this.drop();
      this.attach(kernel);
    }
  }

  private onStatusChanged(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this.forget(false);
    } else if (status === 'idle' && this.kernel !== null) {
      keepSubshellsOfWidgets(this.kernel);
      if (this.restarted) {
        // A panel that is still displayed queries the new kernel, too.
        this.restarted = false;
        keepSubshells(this.kernel);
      }
    }
  }

  /** The process is another one, or none: what the one before knew is gone with it. */
  private forget(unnoticed: boolean): void {
    this.restarted ||= this.raw !== null;
    this.process = null;
    if (this.kernel !== null) {
      forgetSubshells(this.kernel, unnoticed);
    }
    this.drop();
    this.enter(this.kernel === null ? 'none' : 'absent');
  }

  /**
   * A kernel of an older Workbench announces nothing: query it when code that names it has been
   * run.
   */
  private onMessage(_: unknown, message: KernelMessage.IMessage): void {
    const parent = message.parent_header as Partial<KernelMessage.IHeader>;
    if (parent.msg_id !== undefined) {
      this.meet(message.header.session);
    }
    if (isAnnouncement(message)) {
      this.open();
    }
    const isEnd =
      message.header.msg_type === 'status' &&
      (message.content as { execution_state?: string }).execution_state === 'idle' &&
      parent.msg_type === 'execute_request';
    if (isEnd && this.raw === null && mentionsWorkbench(this.panel)) {
      this.open();
    }
  }

  /**
   * A message of the kernel's that answers another one names its process. JupyterLab says nothing
   * of a restart to the other connections, so a new name shows that there was one.
   */
  private meet(process: string): void {
    if (this.process !== null && this.process !== process) {
      this.forget(true);
    }
    this.process = process;
  }

  /** What was sent while the network was away is lost: start over with a snapshot. */
  private onConnectionChanged(_: unknown, status: Kernel.ConnectionStatus): void {
    if (this.raw === null || this._status === 'waiting' || this._status === 'absent') {
      return;
    }
    if (status === 'connected') {
      void this.raw.reconnect();
    } else {
      this.enter('lost');
    }
  }

  private enter(status: ConnectionStatus): void {
    if (status !== this._status) {
      this._status = status;
      this.changed.emit();
    }
  }

  private notifySelection(): void {
    const experiment = this.experiment;
    if (experiment !== this.notified) {
      this.notified = experiment;
      this.changed.emit();
    }
  }

  private kernel: Kernel.IKernelConnection | null = null;
  private raw: KernelStore | null = null;
  private paced: PacedStore | null = null;
  private chosen: string | null = null;
  private restarted = false;
  /** What the kernel's process calls itself, once it has been heard. */
  private process: string | null = null;
  /** The experiment that listeners were last notified of. */
  private notified: string | null = null;
  private _status: ConnectionStatus = 'none';
  private _isDisposed = false;
}
