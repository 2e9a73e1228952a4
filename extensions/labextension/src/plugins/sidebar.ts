import {
  type ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { workbenchIcon } from '../icons';
import { WorkbenchServer } from '../server';
import { RunsStore } from '../sidebar/runs';
import { WorkbenchSidebar } from '../sidebar/sidebar';
import { CommandIDs, IWorkbenchConnections, IWorkbenchSettings } from '../tokens';

export const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:sidebar',
  description: 'The side panel that follows the active notebook.',
  autoStart: true,
  requires: [IWorkbenchConnections, IWorkbenchSettings],
  optional: [ILayoutRestorer, ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    connections: IWorkbenchConnections,
    settings: IWorkbenchSettings,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const server = new WorkbenchServer(trans, app.serviceManager.serverSettings);
    const runs: RunsStore = new RunsStore(server, () => panel.isVisible, trans);
    const panel = new WorkbenchSidebar(connections, runs, app.commands, trans);
    app.shell.add(panel, 'right', { rank: 900, type: 'Workbench' });
    restorer?.add(panel, panel.id);

    const command = CommandIDs.showSidePanel;
    app.commands.addCommand(command, {
      label: trans.__('Show Workbench Side Panel'),
      caption: trans.__('Show or hide experiments, modes, captures and runs'),
      icon: workbenchIcon,
      isToggled: () => panel.isVisible,
      execute: () => {
        // Notebook 7's shell can do this, too, and is no ILabShell.
        const { collapseRight } = app.shell as Partial<Pick<ILabShell, 'collapseRight'>>;
        if (panel.isVisible && collapseRight !== undefined) {
          collapseRight.call(app.shell);
        } else {
          app.shell.activateById(panel.id);
        }
      },
    });
    palette?.addItem({ command, category: trans.__('Workbench') });

    // Once for every notebook: whoever closes the panel afterwards wants it closed.
    const opened = new Set<string>();
    connections.changed.connect(() => {
      const current = connections.current;
      if (current?.experiment != null && !opened.has(current.path)) {
        opened.add(current.path);
        if (settings.openSidePanel && !panel.isVisible) {
          app.shell.activateById(panel.id);
        }
      }
    });
  },
};
