import { PathExt } from '@jupyterlab/coreutils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { Contents } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { bytes, messageOf } from '@torch-workbench/views';
import type { Slots } from '@torch-workbench/views/graph';
import { type Overview, OverviewView, type EventRange } from '@torch-workbench/views/overview';
import { CommandIDs } from '../tokens';
import { type IMemoryPart, isElsewhere, type WorkbenchServer } from '../server';
import { exportButton } from './export-menu';
import { readHere } from './file';
import { stemOfFile } from './formats';
import { compareButton, deviceOf, MemoryParts } from './memory-parts';
import type { MenuButton } from './menu-button';
import type { MemoryHost } from './mount';
import { type IPlace, RecordPanel } from './record-panel';

/**
 * A memory file of the server's: a snapshot of the allocator, or a saved record. A process of the
 * server reads it, never this page. Of one too long to be shown at once, a range is chosen first.
 */
export class MemoryFileView extends RecordPanel {
  constructor(
    private readonly context: DocumentRegistry.Context,
    private readonly server: WorkbenchServer,
    private readonly contents: Contents.IManager,
    commands: CommandRegistry,
    private readonly trans: TranslationBundle,
  ) {
    super();
    this.exports = exportButton(commands, () => this.record.kind, trans);
    this.bar = new MemoryParts(trans, {
      device: (device) => void this.load({ device }),
      range: () => this.choose(),
    });
    this.chooserBar = new MemoryParts(trans, {
      device: (device) => void this.load({ device, overview: true }),
      range: () => undefined,
    });
    this.compare = compareButton(() => {
      const args = { paths: [context.path] };
      void commands.execute(CommandIDs.compareMemoryFiles, args);
    }, trans);
    this.range.addClass('jp-Workbench-view');
    this.addWidget(this.range);
    this.range.hide();
    this.showMessage('busy', trans.__('Reading %1…', this.file));
    void this.begin();
  }

  override get file(): string {
    return PathExt.basename(this.context.path);
  }

  get place(): IPlace {
    return { folder: PathExt.dirname(this.context.path), name: stemOfFile(this.file) };
  }

  override dispose(): void {
    this.closing.abort();
    this.work?.abort();
    this.afar?.dispose();
    this.context.fileChanged.disconnect(this.readAnew, this);
    super.dispose();
  }

  protected override slots(): Slots {
    return { lead: this.bar.elements, tail: [this.compare, this.exports.element] };
  }

  protected override draw(record: ArrayBuffer, host?: MemoryHost): void {
    super.draw(record, host);
    this.range.hide();
  }

  protected override showMessage(...what: Parameters<RecordPanel['showMessage']>): void {
    super.showMessage(...what);
    this.range.hide();
  }

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    const shown = this.range.isVisible ? this.range : this.body;
    (shown.node.querySelector<HTMLElement>('[tabindex="0"]') ?? this.node).focus();
  }

  private get path(): string {
    return this.contents.localPath(this.context.path);
  }

  private async begin(): Promise<void> {
    await this.context.ready;
    if (this.isDisposed) {
      return;
    }
    // Not before: that a file is known at all is a change, too, and it would be read twice.
    this.context.fileChanged.connect(this.readAnew, this);
    // What JupyterLab keeps of a file whose content it did not request is without its size.
    const about = this.contents.get(this.context.path, { content: false });
    this.size = await about.then(({ size }) => size).catch(() => undefined);
    await this.load({});
  }

  private readAnew(): void {
    void this.load({});
  }

  /** Reads a part of the file; what was requested before, and is still read, is given up. */
  private async load(part: IMemoryPart & { overview?: boolean }): Promise<void> {
    if (this.isDisposed) {
      return;
    }
    this.work?.abort();
    const work = (this.work = new AbortController());
    this.wait(work, part);
    try {
      const found = await this.server.memoryRecord(this.path, part, work.signal);
      if (!work.signal.aborted) {
        this.take(found, part);
      }
    } catch (error) {
      if (!work.signal.aborted) {
        await this.fail(error, part);
      }
    }
  }

  private take(found: ArrayBuffer | Overview, part: IMemoryPart & { overview?: boolean }): void {
    if (found instanceof ArrayBuffer) {
      this.part = part;
      this.draw(found, this.hostOf(part));
      this.bar.show(this.seen, part);
      return;
    }
    this.seen = found;
    // Where one device of several had to be named, the busiest is; any other is a click away.
    if (found.num_events <= found.most && part.overview !== true) {
      void this.load({ device: deviceOf(found) });
    } else {
      this.choose();
    }
  }

  /** The overview of the recording, to choose a range of it. */
  private choose(): void {
    const { seen, part } = this;
    if (seen === null) {
      return;
    }
    this.afar ??= this.newOverview(seen);
    const { device, start, end } = part ?? {};
    const isRange = start !== undefined && end !== undefined && device === deviceOf(seen);
    this.body.hide();
    this.hideNotice();
    this.range.show();
    this.afar.show(seen, isRange ? { start, end } : null, this.record.bytes !== null);
    this.chooserBar.show(seen, { device: deviceOf(seen) });
    this.afar.focus();
  }

  private newOverview(seen: Overview): OverviewView {
    const { chooserBar } = this;
    const events = {
      open: (range: EventRange) => void this.load({ device: deviceOf(this.seen), ...range }),
      back: () => this.back(),
    };
    const view = new OverviewView(seen, events, { lead: [chooserBar.device] });
    this.range.node.append(view.element);
    view.start();
    return view;
  }

  /** To what is drawn already. */
  private back(): void {
    this.range.hide();
    this.hideNotice();
    this.body.show();
  }

  private wait(work: AbortController, part: IMemoryPart): void {
    const { trans, file, size } = this;
    const what = size == null ? file : trans.__('%1 (%2)', file, bytes(size));
    this.showMessage('busy', trans.__('Reading %1 in a process of the server…', what), {
      label: trans.__('Stop'),
      run: () => {
        work.abort();
        this.stopped(part);
      },
    });
  }

  private stopped(part: IMemoryPart): void {
    if (this.record.bytes !== null) {
      return this.back();
    }
    if (this.seen !== null) {
      return this.choose();
    }
    this.showMessage('status', this.trans.__('%1 was not read to its end.', this.file), {
      label: this.trans.__('Read it'),
      run: () => void this.load(part),
    });
  }

  private async fail(error: unknown, part: IMemoryPart): Promise<void> {
    if (isElsewhere(error) && this.file.endsWith('.safetensors')) {
      try {
        // No dialog is shown then.
        return this.draw(await readHere(this.contents, this.context.path));
      } catch (reason) {
        error = reason;
      }
    }
    if (!this.isDisposed) {
      this.showMessage('error', messageOf(error), {
        label: this.trans.__('Try again'),
        run: () => void this.load(part),
      });
    }
  }

  private hostOf(part: IMemoryPart): MemoryHost {
    const { signal } = this.closing;
    return { ask: (question) => this.server.askMemory(this.path, part, question, signal) };
  }

  private readonly exports: MenuButton;
  private readonly compare: HTMLButtonElement;
  private readonly bar: MemoryParts;
  private readonly chooserBar: MemoryParts;
  private readonly range = new Widget();
  private readonly closing = new AbortController();
  private afar: OverviewView | null = null;
  /** The file from afar; null while, and where, all of it is drawn. */
  private seen: Overview | null = null;
  /** What is drawn. */
  private part: IMemoryPart | null = null;
  private work: AbortController | null = null;
  private size: number | undefined;
}
