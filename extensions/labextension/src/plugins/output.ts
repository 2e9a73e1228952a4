import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { PANEL_MIME, PanelOutput } from '../output/panel';
import { IWorkbenchConnections } from '../tokens';

/** Before the widget manager's own rank, -10: where this extension runs, its panel is shown. */
const RANK = -20;

export const output: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:output',
  description: "Shows an experiment's panel in the output of its cell.",
  autoStart: true,
  requires: [IRenderMimeRegistry, IWorkbenchConnections],
  activate: (
    _app: JupyterFrontEnd,
    rendermime: IRenderMimeRegistry,
    connections: IWorkbenchConnections,
  ) => {
    rendermime.addFactory(
      {
        // two short strings choose what is shown; they are never executed or inserted as markup
        safe: true,
        mimeTypes: [PANEL_MIME],
        createRenderer: () =>
          new PanelOutput(connections, () => rendermime.createRenderer('text/html')),
      },
      RANK,
    );
  },
};
