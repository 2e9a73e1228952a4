import { PathExt } from '@jupyterlab/coreutils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { Contents } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { messageOf } from '@torch-workbench/views';
import type { Slots } from '@torch-workbench/views/graph';
import { exportButton } from './export-menu';
import { stemOfFile } from './formats';
import type { MenuButton } from './menu-button';
import { type IPlace, RecordPanel } from './record-panel';

/** A record file (`*.graph.safetensors`, `compile.safetensors`), drawn without kernel and server. */
export class RecordFileView extends RecordPanel {
  constructor(
    private readonly context: DocumentRegistry.Context,
    commands: CommandRegistry,
    trans: TranslationBundle,
  ) {
    super();
    this.exports = exportButton(commands, () => this.record.kind, trans);
    this.showMessage('busy', trans.__('Reading the record…'));
    void context.ready.then(() => {
      if (this.isDisposed) {
        return;
      }
      this.read();
      // Not before: that a file is known at all is a change, too, and it would be drawn twice.
      context.fileChanged.connect(this.read, this);
    });
  }

  override get file(): string {
    return PathExt.basename(this.context.path);
  }

  get place(): IPlace {
    return { folder: PathExt.dirname(this.context.path), name: stemOfFile(this.file) };
  }

  override dispose(): void {
    this.context.fileChanged.disconnect(this.read, this);
    super.dispose();
  }

  protected override slots(): Slots {
    return { tail: [this.exports.element] };
  }

  private read(): void {
    if (this.isDisposed) {
      return;
    }
    try {
      this.draw(decode(this.context.model.toString()));
    } catch (error) {
      this.record.clear();
      this.showMessage('error', messageOf(error));
    }
  }

  private readonly exports: MenuButton;
}

/** The bytes of a record file, which is plain data that this page can read without a server. */
export async function readHere(contents: Contents.IManager, path: string): Promise<ArrayBuffer> {
  const options = { content: true, format: 'base64', type: 'file' } as const;
  return decode(String((await contents.get(path, options)).content));
}

/** The contents service hands over binary files as base64, in lines. */
export function decode(text: string): ArrayBuffer {
  const binary = atob(text.replace(/\s/g, ''));
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) {
    bytes[i] = binary.charCodeAt(i);
  }
  return bytes.buffer;
}
