import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { WorkbenchSettings } from '../settings';
import { IWorkbenchSettings } from '../tokens';

/** Its id names the schema file, `schema/plugin.json`. */
export const settings: JupyterFrontEndPlugin<IWorkbenchSettings> = {
  id: 'torch-workbench:plugin',
  description: 'The settings of Workbench.',
  autoStart: true,
  provides: IWorkbenchSettings,
  optional: [ISettingRegistry],
  activate: (_app, registry: ISettingRegistry | null) => {
    const provided = new WorkbenchSettings();
    void registry
      ?.load(settings.id)
      .then((loaded) => provided.connect(loaded))
      .catch((error: unknown) => console.error('Workbench runs with default settings', error));
    return provided;
  },
};
