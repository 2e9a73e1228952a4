import { UUID } from '@lumino/coreutils';
import { Panel, Widget } from '@lumino/widgets';
import { MEMORY_RECORD, readRecordAs } from '@torch-workbench/records';
import { messageOf } from '@torch-workbench/views';
import { csvOf, mount, type MemoryDiffState, Pair } from '@torch-workbench/views/memory-diff';
import type { CommandRegistry } from '@lumino/commands';
import { diffIcon } from '../icons';
import { Notice } from '../notice';
import { CommandIDs } from '../tokens';
import { barButton } from './bar-button';
import {
  folderOf,
  type ILoaded,
  type IMemorySide,
  type ISources,
  load,
  nameOfSide,
  NotHereYet,
  stemOfSide,
} from './memory-side';
import type { IPlace } from './record-panel';

/**
 * Which two recordings a tab compares; plain data, so that a reloaded page can request them again.
 */
export interface IMemoryDiffAddress {
  a: IMemorySide;
  b: IMemorySide;
  /** The tab itself. */
  tab?: string;
}

/** A tab has room for some twenty letters. */
const LONGEST_IN_TAB = 28;

/** Two memory recordings compared, in a tab: captures of kernels, files, or one of each. */
export class MemoryDiffTab extends Panel {
  constructor(
    address: IMemoryDiffAddress,
    private readonly sources: ISources,
    private readonly commands: CommandRegistry,
  ) {
    super();
    this.address = { ...address, tab: address.tab ?? UUID.uuid4() };
    this.id = `workbench-memory-diff-${this.address.tab}`;
    this.addClass('jp-Workbench-document');
    this.addClass('jp-Workbench-comparison');
    this.body.addClass('jp-Workbench-view');
    this.addWidget(this.notice);
    this.addWidget(this.body);
    this.body.node.addEventListener('workbench:swap', () => (this.swapped = !this.swapped));
    this.entitle();
    sources.connections.changed.connect(this.look, this);
    void this.fetch();
  }

  readonly address: IMemoryDiffAddress;

  /** All numbers as a table; null while there is nothing to compare. */
  get csv(): string | null {
    const { a, b } = this.state ?? {};
    if (!a || !b) {
      return null;
    }
    return csvOf(this.swapped ? new Pair(b, a) : new Pair(a, b));
  }

  /** Where what is made of it is saved. */
  get place(): IPlace {
    const { a, b } = this.address;
    const sides = this.swapped ? [b, a] : [a, b];
    return { folder: folderOf(b), name: sides.map(stemOfSide).join(' ') };
  }

  override dispose(): void {
    this.work?.abort();
    this.unmount?.();
    this.sources.connections.changed.disconnect(this.look, this);
    super.dispose();
  }

  protected override onActivateRequest(): void {
    const target = this.body.node.querySelector<HTMLElement>('[tabindex="0"]');
    (target ?? this.node).focus();
  }

  private entitle(): void {
    const { trans } = this.sources;
    const { a, b } = this.address;
    const [first, second] = [nameOfSide(a), nameOfSide(b)];
    const both = trans.__('%1 → %2 · memory diff', first, second);
    this.title.label = both.length <= LONGEST_IN_TAB ? both : trans.__('memory diff · %1', second);
    this.title.caption = both;
    this.title.icon = diffIcon;
  }

  /** A kernel came or went: what waited for it is fetched. Once drawn, it is nothing to the tab. */
  private look(): void {
    if (this.waits && this.work === null) {
      void this.fetch();
    }
  }

  private async fetch(): Promise<void> {
    const work = (this.work = new AbortController());
    this.waits = false;
    const { a, b } = this.address;
    const { trans } = this.sources;
    this.showMessage('busy', trans.__('Reading %1 and %2…', nameOfSide(a), nameOfSide(b)));
    try {
      const both = [a, b].map((side) => load(side, this.sources, work.signal));
      const [first, second] = await Promise.all(both);
      if (first !== undefined && second !== undefined && !work.signal.aborted) {
        this.draw(first, second);
      }
    } catch (error) {
      if (!work.signal.aborted) {
        this.fail(error);
      }
    } finally {
      work.abort(); // what the other side still reads, no caller waits for
      this.work = null;
    }
  }

  private draw(a: ILoaded, b: ILoaded): void {
    const read = ({ bytes }: ILoaded) => readRecordAs(MEMORY_RECORD, bytes);
    const names = [a.name, b.name] as const;
    const state: MemoryDiffState = { a: read(a), b: read(b), error: null, names };
    this.state = state;
    this.notice.hide();
    this.body.show();
    const store = {
      get: () => state,
      subscribe: () => () => undefined,
      send: () => Promise.reject(new Error('a comparison takes no command')),
    };
    this.unmount = mount(this.body.node, store, { slots: { tail: [this.saveButton()] } });
  }

  private fail(error: unknown): void {
    const { trans } = this.sources;
    if (error instanceof NotHereYet) {
      const { notebook } = error;
      this.waits = true;
      this.showMessage('status', error.message, {
        label: trans.__('Open the notebook'),
        run: () => void this.commands.execute('docmanager:open', { path: notebook }),
      });
    } else {
      this.showMessage('error', messageOf(error), {
        label: trans.__('Try again'),
        run: () => void this.fetch(),
      });
    }
  }

  private saveButton(): HTMLElement {
    const { trans } = this.sources;
    const title = trans.__('Save all numbers, by category, module, line and stack, as a table');
    const save = (): void => void this.commands.execute(CommandIDs.saveMemoryDiff);
    return barButton(trans.__('Save as CSV'), title, save);
  }

  private showMessage(...what: Parameters<Notice['showMessage']>): void {
    this.body.hide();
    this.notice.show();
    this.notice.showMessage(...what);
  }

  private readonly notice = new Notice();
  private readonly body = new Widget();
  private state: MemoryDiffState | null = null;
  /** Whether the view shows them the other way round. */
  private swapped = false;
  private work: AbortController | null = null;
  /** For a kernel that is not connected. */
  private waits = false;
  private unmount: (() => void) | null = null;
}
