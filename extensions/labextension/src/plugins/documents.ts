import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { CaptureKind } from '@torch-workbench/records';
import { CaptureView, type ICaptureAddress } from '../documents/capture';
import { captureNext, capturesOf, compareGraphs } from '../documents/choose';
import { nameOf } from '../documents/label';
import { showTab } from '../documents/place';
import { CAPTURE_ICONS } from '../icons';
import { reporting } from '../report';
import { CommandIDs, IWorkbenchConnections } from '../tokens';

type CaptureTab = MainAreaWidget<CaptureView>;

/** What is requested, of which only the kind must be known. */
interface IWanted {
  notebook?: string;
  experiment?: string;
  capture?: string;
  compare?: readonly [string, string];
  /** Captured now, whatever there is. */
  fresh?: boolean;
}

export const documents: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:documents',
  description: 'Captured graphs, their comparisons and memory of live kernels, as tabs.',
  autoStart: true,
  requires: [IWorkbenchConnections],
  optional: [ILabShell, ILayoutRestorer, ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    connections: IWorkbenchConnections,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { commands, shell } = app;
    const tracker = new WidgetTracker<CaptureTab>({ namespace: 'workbench-capture' });

    function show(address: ICaptureAddress): CaptureTab {
      const there = tracker.find((tab) => tab.content.address.capture === address.capture);
      const tab = there ?? new MainAreaWidget({ content: newView(address) });
      if (there === undefined) {
        tab.id = `${tab.content.id}-tab`;
        tab.toolbar.hide();
        void tracker.add(tab);
      }
      showTab(shell, tab, labShell !== null);
      commands.notifyCommandChanged();
      return tab;
    }

    function newView(address: ICaptureAddress): CaptureView {
      const view = new CaptureView(address, connections, commands, trans);
      view.addressChanged.connect(() => {
        const tab = tracker.find(({ content }) => content === view);
        void (tab && tracker.save(tab));
        commands.notifyCommandChanged();
      });
      return view;
    }

    /** The requested capture, else the newest, else one of the next step. */
    async function choose(kind: CaptureKind, wanted: IWanted): Promise<ICaptureAddress> {
      const connection =
        wanted.notebook === undefined ? connections.current : connections.forPath(wanted.notebook);
      const store = connection?.store;
      const experiment = wanted.experiment ?? connection?.experiment;
      const known = experiment == null ? undefined : store?.get().experiments.get(experiment);
      if (!connection || !store || experiment == null || known === undefined) {
        throw new Error(trans.__('There is no experiment in the kernel of the active notebook.'));
      }
      const make = (): Promise<string> =>
        kind === 'diff'
          ? compareGraphs(store, experiment, wanted.compare, trans)
          : captureNext(store, experiment, kind, trans);
      const newest = wanted.fresh === true ? undefined : capturesOf(store, experiment, kind)[0]?.id;
      const capture = wanted.capture ?? newest ?? (await make());
      const info = capturesOf(store, experiment, kind).find((one) => one.id === capture);
      const named = nameOf(known.state.name, info, trans);
      const kernel = connection.kernelId ?? undefined;
      return { kind, notebook: connection.path, kernel, experiment, capture, ...named };
    }

    function add(
      command: string,
      kind: CaptureKind,
      fresh: boolean,
      label: string,
      caption: string,
    ) {
      commands.addCommand(command, {
        label,
        caption,
        icon: CAPTURE_ICONS[kind],
        isEnabled: (args) =>
          typeof args['label'] === 'string' || (connections.current?.experiment ?? null) !== null,
        execute: reporting(async (args) => {
          if (typeof args['label'] === 'string') {
            // A layout that was kept before tabs had names holds none.
            const { name = '', ...kept } = args as unknown as ICaptureAddress;
            return show({ name, ...kept });
          }
          const tab = show(await choose(kind, { ...(args as IWanted), fresh }));
          if (typeof args['module'] === 'string') {
            tab.content.reveal(args['module']);
          }
          return tab;
        }),
      });
      palette?.addItem({ command, category: trans.__('Workbench') });
    }

    add(
      CommandIDs.openGraph,
      'graph',
      false,
      trans.__('Open Graph'),
      trans.__('Open the newest autograd graph of the experiment in a tab'),
    );
    add(
      CommandIDs.openMemory,
      'memory',
      false,
      trans.__('Open Memory'),
      trans.__('Open the newest memory timeline of the experiment in a tab'),
    );
    add(
      CommandIDs.captureGraph,
      'graph',
      true,
      trans.__('Capture Graph of the Next Step'),
      trans.__('Capture the autograd graph of the next step and open it'),
    );
    add(
      CommandIDs.captureMemory,
      'memory',
      true,
      trans.__('Capture Memory of the Next Step'),
      trans.__('Capture the allocations of the next step and open them'),
    );
    add(
      CommandIDs.compareGraphs,
      'diff',
      true,
      trans.__('Compare the Two Newest Graphs'),
      trans.__('Open what changed between the two newest graphs of the experiment'),
    );
    connections.changed.connect(() => commands.notifyCommandChanged());
    connections.currentChanged.connect(() => commands.notifyCommandChanged());

    void restorer?.restore(tracker, {
      command: CommandIDs.openGraph,
      args: (tab) => ({ ...tab.content.address }),
      name: (tab) => tab.content.id,
    });
  },
};
