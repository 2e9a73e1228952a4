import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { follow } from '../connection/follow';
import { StatusItem } from '../statusbar/item';
import { running } from '../statusbar/running';
import { CommandIDs, IWorkbenchConnections, IWorkbenchSettings } from '../tokens';

export const statusbar: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:statusbar',
  description: "Shows the active notebook's training in the status bar.",
  autoStart: true,
  requires: [IWorkbenchConnections, IWorkbenchSettings],
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    connections: IWorkbenchConnections,
    settings: IWorkbenchSettings,
    bar: IStatusBar | null,
    translator: ITranslator | null,
  ) => {
    if (bar === null) {
      return;
    }
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const item = new StatusItem(trans, () => void app.commands.execute(CommandIDs.showSidePanel));
    const activeStateChanged = new Signal<object, void>(item);
    let active = false;

    function update(): void {
      const [state = null, ...others] = running(connections.current);
      const next = settings.showStatus && state !== null;
      if (state !== null) {
        item.showState(state, others);
      }
      if (next !== active) {
        active = next;
        activeStateChanged.emit();
      }
    }

    bar.registerStatusItem('torch-workbench:statusbar', {
      item,
      align: 'left',
      rank: 10,
      isActive: () => active,
      activeStateChanged,
    });
    follow(connections, update);
    settings.changed.connect(update);
  },
};
