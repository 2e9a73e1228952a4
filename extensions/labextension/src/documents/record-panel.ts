import { Panel, Widget } from '@lumino/widgets';
import type { Slots } from '@torch-workbench/views/graph';
import { Notice } from '../notice';
import { type MemoryHost, MountedRecord } from './mount';

/** Where what is made of a record is saved. */
export interface IPlace {
  /** Relative to the server's root. */
  folder: string;
  /** The beginning of every file's name. */
  name: string;
}

/** A record in the main area: its view, or one sentence in place of it. */
export abstract class RecordPanel extends Panel {
  constructor() {
    super();
    this.addClass('jp-Workbench-document');
    this.body.addClass('jp-Workbench-view');
    this.addWidget(this.notice);
    this.addWidget(this.body);
    this.body.hide();
  }

  abstract get place(): IPlace;

  /** Name of the file that holds the record; null for a capture of a live kernel. */
  get file(): string | null {
    return null;
  }

  override dispose(): void {
    this.record.clear();
    super.dispose();
  }

  /** Brings a module of a graph into view, once it is drawn. */
  reveal(module: string): void {
    this.sought = module;
    this.find();
  }

  /** Controls that stand in the view's own bars. */
  protected slots(): Slots {
    return {};
  }

  /** Draws a record in place of the one before; throws one sentence when it cannot be drawn. */
  protected draw(bytes: ArrayBuffer, host?: MemoryHost): void {
    this.record.show(bytes, host);
    this.notice.hide();
    this.body.show();
    this.find();
  }

  /** A frame later: what is not on the page yet has no size, and cannot be gone to. */
  private find(): void {
    requestAnimationFrame(() => {
      if (!this.isDisposed && this.sought !== null && this.record.bytes !== null) {
        this.record.reveal(this.sought);
        this.sought = null;
      }
    });
  }

  /** One sentence in place of the view. */
  protected showMessage(...what: Parameters<Notice['showMessage']>): void {
    this.body.hide();
    this.notice.show();
    this.notice.showMessage(...what);
  }

  /** Takes the sentence away, for what a subclass shows in its place. */
  protected hideNotice(): void {
    this.notice.hide();
  }

  protected readonly body = new Widget();
  readonly record = new MountedRecord(this.body.node, () => this.slots());
  private readonly notice = new Notice();
  private sought: string | null = null;
}
