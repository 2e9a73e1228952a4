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
  activate: (_app: JupyterFrontEnd, tracker: INotebookTracker, settings: IWorkbenchSettings) =>
    new WorkbenchConnections(tracker, settings),
};
