import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { pauseIcon, runIcon, stopIcon } from '@jupyterlab/ui-components';
import type { Command, ExperimentModel } from '@torch-workbench/views';
import { compileIcon, stepIcon, tensorboardIcon } from '../icons';
import { reporting } from '../report';
import { insertCompileReport } from '../sidebar/insert';
import { CommandIDs, type IConnection, IWorkbenchConnections } from '../tokens';

export const commands: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:commands',
  description: 'Trains, pauses, steps and stops the experiment of the active notebook.',
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
    const registry = app.commands;

    /** The experiment the arguments name, else the one the side panel shows. */
    function find(args: object = {}): { connection: IConnection; model: ExperimentModel } | null {
      const { notebook, experiment } = args as { notebook?: string; experiment?: string };
      const connection =
        notebook === undefined ? connections.current : connections.forPath(notebook);
      const id = experiment ?? connection?.experiment;
      const model = id == null ? undefined : connection?.store?.get().experiments.get(id);
      return connection && model ? { connection, model } : null;
    }

    function status(args: object = {}): string {
      return find(args)?.model.state.status ?? 'none';
    }

    async function send(args: object, make: (experiment: string) => Command): Promise<void> {
      const found = find(args);
      if (found === null) {
        throw new Error(trans.__('There is no experiment in the kernel of the active notebook.'));
      }
      await found.connection.store?.send(make(found.model.state.id));
    }

    registry.addCommand(CommandIDs.toggleTraining, {
      label: () => (status() === 'training' ? trans.__('Pause Training') : trans.__('Train')),
      caption: trans.__('Train the experiment of the active notebook, or pause it'),
      icon: () => (status() === 'training' ? pauseIcon : runIcon),
      isEnabled: (args) => find(args) !== null,
      execute: reporting((args) =>
        send(args, (experiment) => {
          const name = status(args) === 'training' ? 'pause' : 'run';
          return { name, experiment, args: {} };
        }),
      ),
    });
    registry.addCommand(CommandIDs.step, {
      label: trans.__('Train One Step'),
      caption: trans.__('Run one training step of the experiment of the active notebook'),
      icon: stepIcon,
      isEnabled: (args) => find(args) !== null && status(args) !== 'training',
      execute: reporting((args) =>
        send(args, (experiment) => ({ name: 'step', experiment, args: { count: 1 } })),
      ),
    });
    registry.addCommand(CommandIDs.stop, {
      label: trans.__('Stop Training'),
      caption: trans.__('Stop the run of the experiment of the active notebook'),
      icon: stopIcon,
      isEnabled: (args) => ['training', 'paused'].includes(status(args)),
      execute: reporting((args) =>
        send(args, (experiment) => ({ name: 'stop', experiment, args: {} })),
      ),
    });
    registry.addCommand(CommandIDs.openRunTensorBoard, {
      label: trans.__('Open TensorBoard of the Run'),
      caption: trans.__("Open TensorBoard of the experiment's run directory"),
      icon: tensorboardIcon,
      isEnabled: (args) => (find(args)?.model.state.run_path ?? '') !== '',
      execute: async (args) =>
        registry.execute(CommandIDs.openTensorBoard, {
          logdir: find(args)?.model.state.run_path ?? '',
        }),
    });

    registry.addCommand(CommandIDs.insertCompileReport, {
      label: trans.__('Insert Compile Report'),
      caption: trans.__('Add a cell that shows what was compiled, where it broke, and why again'),
      icon: compileIcon,
      isEnabled: () => connections.current !== null,
      execute: () => {
        if (connections.current !== null) {
          insertCompileReport(connections.current.panel);
        }
      },
    });

    const ids = [
      CommandIDs.toggleTraining,
      CommandIDs.step,
      CommandIDs.stop,
      CommandIDs.openRunTensorBoard,
      CommandIDs.insertCompileReport,
    ];
    for (const command of ids) {
      palette?.addItem({ command, category: trans.__('Workbench') });
    }
    const refresh = (): void => ids.forEach((id) => registry.notifyCommandChanged(id));
    connections.changed.connect(refresh);
    connections.currentChanged.connect(refresh);
  },
};
