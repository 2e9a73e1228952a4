import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from '@jupyterlab/application';
import {
  ICommandPalette,
  InputDialog,
  IThemeManager,
  MainAreaWidget,
  WidgetTracker,
} from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import { showTab } from '../documents/place';
import { tensorboardIcon } from '../icons';
import { WorkbenchServer } from '../server';
import { DashboardTabs, type DashboardTab } from '../tensorboard/tabs';
import { CommandIDs, IWorkbenchSettings } from '../tokens';

export const tensorboard: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:tensorboard',
  description: "TensorBoard in a tab, behind Jupyter's own login.",
  autoStart: true,
  requires: [IWorkbenchSettings],
  optional: [
    ILabShell,
    ILayoutRestorer,
    IThemeManager,
    ILauncher,
    IDefaultFileBrowser,
    ICommandPalette,
    ITranslator,
  ],
  activate: (
    app: JupyterFrontEnd,
    settings: IWorkbenchSettings,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    launcherItems: ILauncher | null,
    browser: IDefaultFileBrowser | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { commands, shell, serviceManager } = app;
    const server = new WorkbenchServer(trans, serviceManager.serverSettings);
    const tracker = new WidgetTracker<DashboardTab>({ namespace: 'workbench-tensorboard' });
    const tabs = new DashboardTabs(server, settings, themes, tracker, trans);

    commands.addCommand(CommandIDs.openTensorBoard, {
      label: trans.__('TensorBoard'),
      caption: trans.__('Open TensorBoard of a folder in a tab'),
      icon: tensorboardIcon,
      execute: async (args) => {
        const given = args['logdir'];
        const folder = String(args['cwd'] ?? browser?.model.path ?? '');
        const logdir = typeof given === 'string' ? given : await askLogdir(folder);
        if (logdir === null) {
          return undefined;
        }
        const tab = tabs.open(await tabs.nameOf(logdir));
        const isNew = !tab.isAttached;
        showTab(shell, tab, labShell !== null);
        if (isNew) {
          await tracker.add(tab);
        }
        return tab;
      },
    });
    commands.addCommand(CommandIDs.reloadTensorBoard, {
      label: trans.__('Reload TensorBoard'),
      caption: trans.__('Reload the TensorBoard tab'),
      icon: refreshIcon,
      isEnabled: () => tracker.currentWidget !== null,
      execute: () => tracker.currentWidget?.content.reload(),
    });
    commands.addCommand(CommandIDs.stopTensorBoard, {
      label: trans.__('Stop TensorBoard'),
      caption: trans.__('End the TensorBoard process of this tab; its event files stay'),
      icon: stopIcon,
      isEnabled: () => tracker.currentWidget?.content.state === 'running',
      execute: () => tracker.currentWidget?.content.stop(),
    });
    tracker.currentChanged.connect(() => commands.notifyCommandChanged());

    /**
     * `runs` beside the notebook is where runs are written; scanning a whole home directory takes
     * long.
     */
    async function askLogdir(folder: string): Promise<string | null> {
      const answer = await InputDialog.getText({
        title: trans.__('Open TensorBoard'),
        label: trans.__("Folder of runs, relative to the server's root"),
        text: PathExt.join(folder, 'runs'),
        okLabel: trans.__('Open'),
      });
      return answer.button.accept ? (answer.value ?? '').trim() : null;
    }

    void restorer?.restore(tracker, {
      command: CommandIDs.openTensorBoard,
      args: (tab: MainAreaWidget) => ({ logdir: (tab as DashboardTab).content.logdir }),
      name: (tab: MainAreaWidget) => (tab as DashboardTab).content.logdir,
    });
    const category = trans.__('Workbench');
    launcherItems?.add({ command: CommandIDs.openTensorBoard, category, rank: 2 });
    for (const command of [
      CommandIDs.openTensorBoard,
      CommandIDs.reloadTensorBoard,
      CommandIDs.stopTensorBoard,
    ]) {
      palette?.addItem({ command, category });
    }
  },
};
