import type { TranslationBundle } from '@jupyterlab/translation';
import { UUID } from '@lumino/coreutils';
import type { Message } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';
import type { CaptureKind } from '@torch-workbench/records';
import { Notice } from '../notice';
import { CAPTURE_ICONS } from '../icons';
import type { PacedStore } from '../connection/paced';
import type { IWorkbenchConnections } from '../tokens';
import { mountRecord } from './mount';
import { NOTEBOOK_ATTRIBUTE } from './request';

/** Which capture a tab shows; plain data, so that a reloaded page can ask for it again. */
export interface ICaptureAddress {
  kind: CaptureKind;
  /** The notebook in whose kernel it is held. */
  notebook: string;
  experiment: string;
  capture: string;
  /** What the tab is called. */
  label: string;
}

/** A capture of a live kernel, in a tab. */
export class CaptureView extends Panel {
  constructor(
    readonly address: ICaptureAddress,
    private readonly connections: IWorkbenchConnections,
    private readonly openNotebook: (path: string) => void,
    private readonly trans: TranslationBundle,
  ) {
    super();
    this.id = `workbench-capture-${UUID.uuid4()}`;
    this.addClass('jp-Workbench-document');
    this.node.setAttribute(NOTEBOOK_ATTRIBUTE, address.notebook);
    this.title.label = address.label;
    this.title.caption = trans.__('%1, captured in %2', address.label, address.notebook);
    this.title.icon = CAPTURE_ICONS[address.kind];
    this.addWidget(this.notice);
    this.addWidget(this.body);
    this.body.addClass('jp-Workbench-view');
    connections.changed.connect(this.look, this);
    this.look();
  }

  override dispose(): void {
    this.connections.changed.disconnect(this.look, this);
    this.unmount?.();
    super.dispose();
  }

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    const target = this.body.node.querySelector<HTMLElement>('[tabindex="0"], button');
    (target ?? this.node).focus();
  }

  /** Once shown, a record stays: it is in the browser, whatever becomes of the kernel. */
  private look(): void {
    if (this.unmount !== null || this.fetching) {
      return;
    }
    const { notebook } = this.address;
    const connection = this.connections.forPath(notebook);
    if (connection === null) {
      this.tell('status', this.trans.__('This capture is held by the kernel of %1.', notebook), {
        label: this.trans.__('Open the notebook'),
        run: () => this.openNotebook(notebook),
      });
    } else if (connection.status !== 'open' || connection.store === null) {
      this.tell('busy', this.trans.__('Waiting for the kernel of %1…', notebook));
    } else {
      void this.fetch(connection.store);
    }
  }

  private async fetch(store: PacedStore): Promise<void> {
    const { experiment, capture } = this.address;
    this.fetching = true;
    this.tell('busy', this.trans.__('Fetching the capture…'));
    try {
      const bytes = await store.fetchRecord(experiment, capture);
      if (!this.isDisposed) {
        this.unmount = mountRecord(this.body.node, bytes);
        this.notice.hide();
        this.body.show();
      }
    } catch (error) {
      if (!this.isDisposed) {
        this.tell('error', error instanceof Error ? error.message : String(error), {
          label: this.trans.__('Try again'),
          run: () => this.look(),
        });
      }
    } finally {
      this.fetching = false;
    }
  }

  private tell(...what: Parameters<Notice['tell']>): void {
    this.body.hide();
    this.notice.show();
    this.notice.tell(...what);
  }

  private readonly notice = new Notice();
  private readonly body = new Widget();
  private fetching = false;
  private unmount: (() => void) | null = null;
}
