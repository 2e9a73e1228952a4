import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { workbenchIcon } from '../icons';
import { createClassifier } from '../launcher/notebook';
import { CommandIDs } from '../tokens';

export const launcher: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:launcher',
  description: 'Creates a notebook that trains a classifier.',
  autoStart: true,
  optional: [ILauncher, IDefaultFileBrowser, ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    launcherItems: ILauncher | null,
    browser: IDefaultFileBrowser | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const category = trans.__('Workbench');
    const command = CommandIDs.createClassifier;
    app.commands.addCommand(command, {
      label: (args) =>
        args['isPalette'] === true
          ? trans.__('New Classifier Notebook')
          : trans.__('Workbench classifier'),
      caption: trans.__('Create a notebook that builds and trains a classifier, ready to run'),
      icon: workbenchIcon,
      execute: async (args) => {
        const folder = args['cwd'] ?? browser?.model.path ?? '';
        const path = await createClassifier(app.serviceManager, String(folder));
        return app.commands.execute('docmanager:open', { path, factory: 'Notebook' });
      },
    });
    launcherItems?.add({ command, category, rank: 1 });
    palette?.addItem({ command, category, args: { isPalette: true } });
  },
};
