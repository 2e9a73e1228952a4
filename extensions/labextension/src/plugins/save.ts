import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { CaptureView } from '../documents/capture';
import { saveRecord } from '../documents/save';
import { reporting } from '../report';
import { CommandIDs, IWorkbenchConnections } from '../tokens';

export const save: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:save',
  description: 'Saves the capture of a tab as a file beside its notebook.',
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
    const { commands, shell, serviceManager } = app;

    /** The capture of the tab in front. */
    function current(): CaptureView | null {
      const tab = shell.currentWidget;
      const content = tab instanceof MainAreaWidget ? (tab.content as unknown) : null;
      return content instanceof CaptureView ? content : null;
    }

    commands.addCommand(CommandIDs.saveCapture, {
      label: trans.__('Save Capture as a File'),
      caption: trans.__('Save the graph, diff or memory of this tab beside its notebook'),
      isEnabled: () => current() !== null,
      execute: reporting(async () => {
        const view = current();
        if (view === null) {
          throw new Error(trans.__('The tab in front shows no capture.'));
        }
        const { kind, notebook, experiment, capture, label } = view.address;
        const store = connections.forPath(notebook)?.store;
        if (!store) {
          throw new Error(trans.__('This capture is held by the kernel of %1.', notebook));
        }
        const bytes = await store.fetchRecord(experiment, capture);
        const folder = PathExt.dirname(notebook);
        const path = await saveRecord(serviceManager.contents, folder, label, kind, bytes);
        Notification.success(trans.__('Saved as %1', path), { autoClose: 5000 });
        return path;
      }),
    });
    palette?.addItem({ command: CommandIDs.saveCapture, category: trans.__('Workbench') });
    app.contextMenu.addItem({
      command: CommandIDs.saveCapture,
      selector: '.jp-Workbench-document',
      rank: 0,
    });
    shell.currentChanged?.connect(() => commands.notifyCommandChanged(CommandIDs.saveCapture));
  },
};
