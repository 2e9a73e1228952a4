import { PathExt } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { UUID } from '@lumino/coreutils';
import type { Message } from '@lumino/messaging';
import { type ISignal, Signal } from '@lumino/signaling';
import type { CaptureInfo, CaptureKind } from '@torch-workbench/records';
import { messageOf } from '@torch-workbench/views';
import type { Slots } from '@torch-workbench/views/graph';
import { CAPTURE_ICONS } from '../icons';
import type { PacedStore } from '../connection/paced';
import type { IWorkbenchConnections } from '../tokens';
import { CaptureBar } from './capture-bar';
import { capturesOf } from './choose';
import { hostOf } from './capture-host';
import { CaptureFlow } from './flow-foot';
import { type IGone, whyGone } from './gone';
import { captionOf, type ICaptureName, nameOf, stemOf, titleOf } from './label';
import { type IPlace, RecordPanel } from './record-panel';
import { EXPERIMENT_ATTRIBUTE, NOTEBOOK_ATTRIBUTE } from './request';

/** Which capture a tab shows; plain data, so that a reloaded page can request it again. */
export interface ICaptureAddress extends ICaptureName {
  kind: CaptureKind;
  /** The notebook in whose kernel it is held. */
  notebook: string;
  /** That kernel. */
  kernel?: string;
  experiment: string;
  capture: string;
  /** The tab itself: it stays the same while captures come and go in it. */
  tab?: string;
}

/** A capture of a live kernel, in a tab; others of its kind can be shown in its place. */
export class CaptureView extends RecordPanel {
  constructor(
    address: ICaptureAddress,
    private readonly connections: IWorkbenchConnections,
    private readonly commands: CommandRegistry,
    private readonly trans: TranslationBundle,
  ) {
    super();
    this._address = { ...address, tab: address.tab ?? UUID.uuid4() };
    this.id = `workbench-capture-${this._address.tab}`;
    this.wanted = address.capture;
    this.node.setAttribute(NOTEBOOK_ATTRIBUTE, address.notebook);
    this.node.setAttribute(EXPERIMENT_ATTRIBUTE, address.experiment);
    this.node.dataset.kind = address.kind;
    this.title.icon = CAPTURE_ICONS[address.kind];
    this.bar = new CaptureBar(this, commands, trans);
    this.flow = address.kind === 'graph' ? new CaptureFlow(this) : null;
    this.entitle();
    connections.changed.connect(this.look, this);
    this.look();
  }

  get address(): ICaptureAddress {
    return this._address;
  }

  /** Another capture is shown now. */
  get addressChanged(): ISignal<this, void> {
    return this._addressChanged;
  }

  /** The kernel's store; null while there is no open connection to it. */
  get store(): PacedStore | null {
    const connection = this.connections.forHolder(this._address);
    return connection?.status === 'open' ? connection.store : null;
  }

  /** Why the kernel cannot be queried for other captures; null while it can. */
  get gone(): IGone | null {
    const { notebook, experiment } = this._address;
    const connection = this.connections.forHolder(this._address);
    return whyGone(connection, notebook, experiment, this.trans);
  }

  /** The captures of this kind that the kernel holds, newest first. */
  get held(): readonly CaptureInfo[] {
    const { experiment, kind } = this._address;
    return this.store === null ? [] : capturesOf(this.store, experiment, kind);
  }

  /** The captured step; null before it is known. */
  get step(): number | null {
    const { record } = this.record.get();
    const known = record !== null && 'step' in record ? record.step : null;
    return known ?? this.held.find(({ id }) => id === this._address.capture)?.step ?? null;
  }

  get place(): IPlace {
    return { folder: PathExt.dirname(this._address.notebook), name: stemOf(this._address) };
  }

  /** The capture before (-1) or after (1) the one that is shown, or on its way. */
  neighbour(direction: -1 | 1): CaptureInfo | undefined {
    const { held } = this;
    const at = held.findIndex(({ id }) => id === this.wanted);
    return at < 0 ? undefined : held[at - direction];
  }

  /** Shows another capture of the same kind in this tab, once its bytes are here. */
  async goTo(capture: string): Promise<void> {
    const { store } = this;
    if (store === null) {
      throw new Error(this.goneSentence());
    }
    this.wanted = capture;
    try {
      const bytes = await store.fetchRecord(this._address.experiment, capture);
      // A later wish goes before.
      if (!this.isDisposed && this.wanted === capture) {
        this.draw(bytes, hostOf(this, capture, this.commands, this.trans));
        this.readdress(capture, store);
      }
    } finally {
      if (this.wanted === capture) {
        this.wanted = this._address.capture;
      }
    }
  }

  override dispose(): void {
    this.connections.changed.disconnect(this.look, this);
    this.unfollow?.();
    this.flow?.dispose();
    Signal.clearData(this);
    super.dispose();
  }

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    const target = this.body.node.querySelector<HTMLElement>('[tabindex="0"], button');
    (target ?? this.node).focus();
  }

  protected override slots(): Slots {
    const { bar, flow } = this;
    return flow === null ? bar.slots : { ...bar.slots, foot: flow.element };
  }

  private readdress(capture: string, store: PacedStore): void {
    const { experiment } = this._address;
    const info = this.held.find(({ id }) => id === capture);
    const name = store.get().experiments.get(experiment)?.state.name ?? '';
    this._address = { ...this._address, capture, ...nameOf(name, info, this.trans) };
    this.entitle();
    this.refresh();
    this._addressChanged.emit();
  }

  private entitle(): void {
    const { kind, notebook } = this._address;
    this.title.label = titleOf(kind, this._address, this.trans);
    const full = captionOf(kind, this._address, this.trans);
    this.title.caption = this.trans.__('%1, captured in %2', full, notebook);
  }

  /** Once shown, a record stays: it is in the browser, whatever becomes of the kernel. */
  private look(): void {
    this.followNotebook();
    this.follow();
    this.refresh();
    if (this.record.bytes !== null || this.fetching) {
      return;
    }
    const { notebook } = this._address;
    const { store } = this;
    const connection = this.connections.forHolder(this._address);
    if (connection === null || connection.status === 'absent') {
      this.showMessage(
        'status',
        connection === null ? this.goneSentence() : this.absentSentence(),
        {
          label: this.trans.__('Open the notebook'),
          run: () => void this.commands.execute('docmanager:open', { path: notebook }),
        },
      );
    } else if (store === null) {
      this.showMessage('busy', this.trans.__('Waiting for the kernel of %1…', notebook));
    } else {
      void this.fetch(store);
    }
  }

  /** The notebook of the kernel may have been renamed or moved. */
  private followNotebook(): void {
    const connection = this.connections.forHolder(this._address);
    const { notebook, kernel } = this._address;
    if (connection === null || connection.kernelId !== kernel || connection.path === notebook) {
      return;
    }
    this._address = { ...this._address, notebook: connection.path };
    this.node.setAttribute(NOTEBOOK_ATTRIBUTE, connection.path);
    this.entitle();
    this._addressChanged.emit();
  }

  /** What the kernel holds changes without a change of the connection. */
  private follow(): void {
    const { store } = this;
    if (store !== this.followed) {
      this.unfollow?.();
      this.followed = store;
      this.unfollow = store?.subscribe(() => this.refresh());
    }
  }

  private async fetch(store: PacedStore): Promise<void> {
    const { experiment, capture } = this._address;
    this.fetching = true;
    this.showMessage('busy', this.trans.__('Fetching the capture…'));
    try {
      const bytes = await store.fetchRecord(experiment, capture);
      if (!this.isDisposed) {
        this.draw(bytes, hostOf(this, capture, this.commands, this.trans));
        this.refresh();
      }
    } catch (error) {
      if (!this.isDisposed) {
        this.showMessage('error', messageOf(error), {
          label: this.trans.__('Try again'),
          run: () => this.look(),
        });
      }
    } finally {
      this.fetching = false;
    }
  }

  private refresh(): void {
    this.bar.update();
    this.flow?.update();
  }

  private goneSentence(): string {
    return this.trans.__('This capture is held by the kernel of %1.', this._address.notebook);
  }

  private absentSentence(): string {
    return this.trans.__(
      'The kernel of %1 was restarted or has not imported Workbench, so this capture is not there. Run the notebook’s cells again.',
      this._address.notebook,
    );
  }

  private _address: ICaptureAddress;
  private readonly _addressChanged = new Signal<this, void>(this);
  private readonly bar: CaptureBar;
  private readonly flow: CaptureFlow | null;
  private wanted: string;
  private fetching = false;
  private followed: PacedStore | null = null;
  private unfollow: (() => void) | undefined;
}
