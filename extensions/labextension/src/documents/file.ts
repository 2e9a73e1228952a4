import { ABCWidgetFactory, type DocumentRegistry, DocumentWidget } from '@jupyterlab/docregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Panel, Widget } from '@lumino/widgets';
import { Notice } from '../notice';
import { mountRecord } from './mount';

/** A record file (`*.graph.safetensors`, `*.diff.safetensors`, `*.memory.safetensors`), drawn without any kernel. */
export class RecordFileView extends Panel {
  constructor(
    private readonly context: DocumentRegistry.Context,
    trans: TranslationBundle,
  ) {
    super();
    this.addClass('jp-Workbench-document');
    this.body.addClass('jp-Workbench-view');
    this.addWidget(this.notice);
    this.addWidget(this.body);
    this.body.hide();
    this.notice.tell('busy', trans.__('Reading the record…'));
    void context.ready.then(() => this.draw());
    context.fileChanged.connect(this.draw, this);
  }

  override dispose(): void {
    this.context.fileChanged.disconnect(this.draw, this);
    this.unmount?.();
    super.dispose();
  }

  private draw(): void {
    if (this.isDisposed) {
      return;
    }
    this.unmount?.();
    this.unmount = null;
    try {
      this.unmount = mountRecord(this.body.node, decode(this.context.model.toString()));
      this.notice.hide();
      this.body.show();
    } catch (error) {
      this.body.hide();
      this.notice.show();
      this.notice.tell('error', error instanceof Error ? error.message : String(error));
    }
  }

  private readonly notice = new Notice();
  private readonly body = new Widget();
  private unmount: (() => void) | null = null;
}

/** Opens record files in the main area. */
export class RecordFileFactory extends ABCWidgetFactory<DocumentWidget<RecordFileView>> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions,
    private readonly trans: TranslationBundle,
  ) {
    super(options);
  }

  protected override createNewWidget(
    context: DocumentRegistry.Context,
  ): DocumentWidget<RecordFileView> {
    return new DocumentWidget({ content: new RecordFileView(context, this.trans), context });
  }
}

/** The contents service hands over binary files as base64, in lines. */
function decode(text: string): ArrayBuffer {
  const binary = atob(text.replace(/\s/g, ''));
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) {
    bytes[i] = binary.charCodeAt(i);
  }
  return bytes.buffer;
}
