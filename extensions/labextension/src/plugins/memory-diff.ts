import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, Notification, WidgetTracker } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { FileDialog, IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import type { Contents } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { CaptureInfo } from '@torch-workbench/records';
import { capturesOf } from '../documents/choose';
import { currentCapture } from '../documents/current';
import { nameOf } from '../documents/label';
import { type IMemoryDiffAddress, MemoryDiffTab } from '../documents/memory-diff';
import { type ICaptureSide, type IMemorySide, keyOf } from '../documents/memory-side';
import { inFront, showTab } from '../documents/place';
import { saveFile } from '../documents/save';
import { diffIcon } from '../icons';
import { reporting } from '../report';
import { WorkbenchServer } from '../server';
import { CommandIDs, IWorkbenchConnections } from '../tokens';

/** File types that a memory recording may have. */
const TYPES = ['workbench-memory', 'workbench-snapshot', 'workbench-pickle'];

type DiffTab = MainAreaWidget<MemoryDiffTab>;

/** What the commands take: two sides, ids of captures, or paths of files; of each the older first. */
interface IWanted {
  notebook?: string;
  experiment?: string;
  compare?: readonly [string, string];
  paths?: readonly string[];
}

export const memoryDiff: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:memory-diff',
  description: 'Compares two memory recordings in a tab: captures, files, or one of each.',
  autoStart: true,
  requires: [IWorkbenchConnections],
  optional: [IDefaultFileBrowser, ILabShell, ILayoutRestorer, ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    connections: IWorkbenchConnections,
    browser: IDefaultFileBrowser | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { commands, docRegistry, serviceManager, shell } = app;
    const { contents, serverSettings } = serviceManager;
    const server = new WorkbenchServer(trans, serverSettings);
    const sources = { server, contents, connections, trans };
    const tracker = new WidgetTracker<DiffTab>({ namespace: 'workbench-memory-diff' });

    function show(address: IMemoryDiffAddress): DiffTab {
      const keys = (one: IMemoryDiffAddress): string => [one.a, one.b].map(keyOf).join();
      const there = tracker.find(({ content }) => keys(content.address) === keys(address));
      const content = there?.content ?? new MemoryDiffTab(address, sources, commands);
      const tab = there ?? new MainAreaWidget({ content });
      if (there === undefined) {
        tab.id = `${content.id}-tab`;
        tab.toolbar.hide();
        void tracker.add(tab);
      }
      showTab(shell, tab, labShell !== null);
      return tab;
    }

    /** Two captures that a kernel holds, as sides. */
    function held({ notebook, experiment, compare }: IWanted): [ICaptureSide, ICaptureSide] {
      const connection =
        notebook === undefined ? connections.current : connections.forPath(notebook);
      const of = experiment ?? connection?.experiment;
      if (connection?.store == null || of == null) {
        throw new Error(trans.__('There is no experiment in the kernel of the active notebook.'));
      }
      const captures = capturesOf(connection.store, of, 'memory');
      const [newest, older] = captures;
      const [a, b] = (compare ?? [older?.id, newest?.id]).map((id) =>
        captures.find((one) => one.id === id),
      );
      if (a === undefined || b === undefined) {
        throw new Error(
          trans.__('Two memory captures are needed to compare them: capture another step first.'),
        );
      }
      const name = connection.store.get().experiments.get(of)?.state.name ?? '';
      const side = (info: CaptureInfo): ICaptureSide => ({
        ...nameOf(name, info, trans),
        notebook: connection.path,
        kernel: connection.kernelId ?? undefined,
        experiment: of,
        capture: info.id,
      });
      return [side(a), side(b)];
    }

    function isMemory(path: string): boolean {
      return docRegistry.getFileTypesForPath(path).some(({ name }) => TYPES.includes(name));
    }

    /** The files that are selected in the browser, the older first. */
    function selected(): Contents.IModel[] {
      const models = [...(browser?.selectedItems() ?? [])];
      return models.sort((a, b) => a.last_modified.localeCompare(b.last_modified));
    }

    /** A memory file, chosen in a dialog; null where none is. */
    async function chosen(folder: string): Promise<string | null> {
      if (browser === null) {
        throw new Error(trans.__('There is no file browser to choose a file in.'));
      }
      const { value } = await FileDialog.getOpenFiles({
        manager: browser.model.manager,
        title: trans.__('Compare with…'),
        defaultPath: folder,
        filter: ({ type, path }) => (type === 'directory' || isMemory(path) ? {} : null),
      });
      return value?.find(({ type }) => type !== 'directory')?.path ?? null;
    }

    async function compareFiles({ paths }: IWanted): Promise<DiffTab | undefined> {
      const given = paths ?? selected().map(({ path }) => path);
      const [first] = given;
      if (first === undefined) {
        throw new Error(trans.__('Select a memory file, or two, in the file browser.'));
      }
      const second = given[1] ?? (await chosen(PathExt.dirname(first)));
      return second === null ? undefined : show({ a: { path: first }, b: { path: second } });
    }

    /** The capture in front, and a file. */
    async function compareCapture(): Promise<DiffTab | undefined> {
      const view = currentCapture(shell);
      if (view === null) {
        throw new Error(trans.__('The tab in front shows no capture.'));
      }
      const { name, label, notebook, kernel, experiment, capture } = view.address;
      const path = await chosen(PathExt.dirname(notebook));
      const side: IMemorySide = { name, label, notebook, kernel, experiment, capture };
      return path === null ? undefined : show({ a: side, b: { path } });
    }

    function current(): MemoryDiffTab | null {
      const tab = tracker.currentWidget;
      return tab !== null && inFront(shell).includes(tab) ? tab.content : null;
    }

    async function saveTable(): Promise<string> {
      const tab = current();
      const csv = tab?.csv ?? null;
      if (tab === null || csv === null) {
        throw new Error(trans.__('The tab in front compares no memory.'));
      }
      const { folder, name } = tab.place;
      const bytes = new TextEncoder().encode(csv).buffer;
      const path = await saveFile(contents, folder, name, 'memory-diff.csv', bytes);
      const open = {
        label: trans.__('Open'),
        callback: () => void commands.execute('docmanager:open', { path }),
      };
      Notification.success(trans.__('Saved as %1', path), { autoClose: 5000, actions: [open] });
      return path;
    }

    commands.addCommand(CommandIDs.compareMemory, {
      label: trans.__('Compare the Two Newest Memory Captures'),
      caption: trans.__('Open whose bytes differ at the peaks of two memory captures'),
      icon: diffIcon,
      isEnabled: (args) => 'a' in args || (connections.current?.experiment ?? null) !== null,
      execute: reporting((args) => {
        if ('a' in args) {
          return Promise.resolve(show(args as unknown as IMemoryDiffAddress));
        }
        const [a, b] = held(args as IWanted);
        return Promise.resolve(show({ a, b }));
      }),
    });
    commands.addCommand(CommandIDs.compareMemoryFiles, {
      label: ({ paths }) =>
        paths === undefined && selected().length === 2
          ? trans.__('Compare Memory')
          : trans.__('Compare Memory with…'),
      caption: trans.__('Open whose bytes differ at the peaks of two memory files'),
      icon: diffIcon,
      isVisible: ({ paths }) => {
        const files = selected();
        return (
          paths !== undefined || (files.length < 3 && files.every(({ path }) => isMemory(path)))
        );
      },
      execute: reporting((args) => compareFiles(args as IWanted)),
    });
    commands.addCommand(CommandIDs.compareMemoryCapture, {
      label: trans.__('A File…'),
      caption: trans.__('Compare this capture with a memory file'),
      isEnabled: () => currentCapture(shell)?.address.kind === 'memory',
      execute: reporting(compareCapture),
    });
    for (const command of [CommandIDs.compareMemory, CommandIDs.saveMemoryDiff]) {
      palette?.addItem({ command, category: trans.__('Workbench') });
    }
    commands.addCommand(CommandIDs.saveMemoryDiff, {
      label: trans.__('Save Memory Diff as CSV'),
      caption: trans.__('Save all numbers of the comparison in front as a table'),
      isEnabled: () => current() !== null,
      execute: reporting(saveTable),
    });
    for (const type of TYPES) {
      app.contextMenu.addItem({
        command: CommandIDs.compareMemoryFiles,
        selector: `.jp-DirListing-item[data-file-type="${type}"]`,
        rank: 3,
      });
    }
    void restorer?.restore(tracker, {
      command: CommandIDs.compareMemory,
      args: ({ content }) => ({ ...content.address }) as never,
      name: ({ content }) => content.id,
    });
  },
};
