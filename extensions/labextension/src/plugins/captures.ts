import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { CaptureView } from '../documents/capture';
import { captureNext, capturesOf, compareGraphs } from '../documents/choose';
import { currentCapture } from '../documents/current';
import { reporting } from '../report';
import { CommandIDs, IWorkbenchConnections } from '../tokens';

export const captures: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:captures',
  description: 'Steps through captures in one tab, compares two, swaps the compared sides.',
  autoStart: true,
  requires: [IWorkbenchConnections],
  optional: [ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    connections: IWorkbenchConnections,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { commands, shell } = app;
    const current = (): CaptureView | null => currentCapture(shell);

    /** The tab in front with its kernel; throws one sentence where either is missing. */
    function live(): { view: CaptureView; store: NonNullable<CaptureView['store']> } {
      const view = current();
      if (view === null) {
        throw new Error(trans.__('The tab in front shows no capture.'));
      }
      if (view.store === null) {
        throw new Error(
          trans.__('This capture is held by the kernel of %1.', view.address.notebook),
        );
      }
      return { view, store: view.store };
    }

    async function compareWith(other: string | undefined): Promise<unknown> {
      const { view, store } = live();
      const { experiment, notebook, capture, kind } = view.address;
      const alike = capturesOf(store, experiment, kind);
      const against = other ?? (view.neighbour(-1) ?? view.neighbour(1))?.id;
      const [newer, older] = alike.filter(({ id }) => id === capture || id === against);
      if (newer === undefined || older === undefined) {
        throw new Error(trans.__('This capture is not held any more: choose another one.'));
      }
      if (kind === 'memory') {
        const compare = [older.id, newer.id];
        return commands.execute(CommandIDs.compareMemory, { notebook, experiment, compare });
      }
      const held = capturesOf(store, experiment, 'diff').find(
        ({ step, against_step }) => step === newer.step && against_step === older.step,
      );
      const what = held ? { capture: held.id } : { compare: [older.id, newer.id] };
      return commands.execute(CommandIDs.compareGraphs, { notebook, experiment, ...what });
    }

    /** The same comparison the other way round, in the same tab. */
    async function swap(): Promise<void> {
      const { view, store } = live();
      const { experiment, capture } = view.address;
      const diffs = capturesOf(store, experiment, 'diff');
      const shown = diffs.find(({ id }) => id === capture);
      const graphs = capturesOf(store, experiment, 'graph');
      const a = graphs.find(({ step }) => step === shown?.against_step);
      const b = graphs.find(({ step }) => step === shown?.step);
      if (shown === undefined || a === undefined || b === undefined) {
        throw new Error(trans.__('The two graphs of this comparison are not held any more.'));
      }
      const held = diffs.find((one) => one.step === a.step && one.against_step === b.step);
      await view.goTo(held?.id ?? (await compareGraphs(store, experiment, [b.id, a.id], trans)));
    }

    commands.addCommand(CommandIDs.showCapture, {
      label: (args) => String(args['label'] ?? trans.__('Show a Capture in This Tab')),
      isToggled: (args) => current()?.address.capture === args['capture'],
      isEnabled: (args) => typeof args['capture'] === 'string' && current()?.store != null,
      execute: reporting((args) => live().view.goTo(String(args['capture']))),
    });
    commands.addCommand(CommandIDs.captureHere, {
      label: trans.__('Capture Next Step'),
      caption: trans.__('Capture the next step and show it in this tab'),
      isEnabled: () => current()?.gone === null && current()?.address.kind !== 'diff',
      execute: reporting(async () => {
        const { view, store } = live();
        const { experiment, kind } = view.address;
        await view.goTo(
          await captureNext(store, experiment, kind === 'memory' ? 'memory' : 'graph', trans),
        );
      }),
    });
    for (const [command, direction, label] of [
      [CommandIDs.olderCapture, -1, trans.__('Show the Capture Before')],
      [CommandIDs.newerCapture, 1, trans.__('Show the Capture After')],
    ] as const) {
      commands.addCommand(command, {
        label,
        isEnabled: () => current()?.neighbour(direction) !== undefined,
        execute: reporting(async () => {
          const next = current()?.neighbour(direction);
          await (next && live().view.goTo(next.id));
        }),
      });
    }
    commands.addCommand(CommandIDs.compareWith, {
      label: (args) => String(args['label'] ?? trans.__('Compare with the Capture Before')),
      caption: trans.__('Open what changed between two captures of the experiment'),
      isEnabled: () =>
        ['graph', 'memory'].includes(current()?.address.kind ?? '') &&
        (current()?.held.length ?? 0) > 1,
      execute: reporting((args) => compareWith(args['capture'] as string | undefined)),
    });
    commands.addCommand(CommandIDs.swapSides, {
      label: trans.__('Swap A and B'),
      caption: trans.__('Read the comparison the other way round'),
      isEnabled: () => current()?.address.kind === 'diff' && current()?.gone === null,
      execute: reporting(swap),
    });

    const ids = [
      CommandIDs.captureHere,
      CommandIDs.olderCapture,
      CommandIDs.newerCapture,
      CommandIDs.compareWith,
      CommandIDs.swapSides,
    ];
    for (const command of ids) {
      palette?.addItem({ command, category: trans.__('Workbench') });
    }
    const refresh = (): void => ids.forEach((id) => commands.notifyCommandChanged(id));
    connections.changed.connect(refresh);
    shell.currentChanged?.connect(refresh);
  },
};
