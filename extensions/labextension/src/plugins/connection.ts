import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { WorkbenchConnections } from '../connection/service';
import { IWorkbenchConnections, IWorkbenchSettings } from '../tokens';

export const connection: JupyterFrontEndPlugin<IWorkbenchConnections> = {
  id: 'torch-workbench:connection',
  description: 'Follows the experiments in the kernels of open notebooks.',
  autoStart: true,
  provides: IWorkbenchConnections,
  requires: [INotebookTracker, IWorkbenchSettings],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker, settings: IWorkbenchSettings) => {
    const connections = new WorkbenchConnections(tracker, settings);
    app.shell.currentChanged?.connect((_, { newValue }) => connections.lookAt(newValue));
    return connections;
  },
};
