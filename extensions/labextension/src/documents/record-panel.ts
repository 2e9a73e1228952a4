import { Panel, Widget } from '@lumino/widgets';
import type { Slots } from '@torch-workbench/views/graph';
import { Notice } from '../notice';
import { MountedRecord } from './mount';

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

  /** Controls that stand in the view's own bars. */
  protected slots(): Slots {
    return {};
  }

  /** Draws a record in place of the one before; throws one sentence when it cannot be drawn. */
  protected draw(bytes: ArrayBuffer): void {
    this.record.show(bytes);
    this.notice.hide();
    this.body.show();
  }

  /** One sentence in place of the view. */
  protected tell(...what: Parameters<Notice['tell']>): void {
    this.body.hide();
    this.notice.show();
    this.notice.tell(...what);
  }

  protected readonly body = new Widget();
  readonly record = new MountedRecord(this.body.node, () => this.slots());
  private readonly notice = new Notice();
}
