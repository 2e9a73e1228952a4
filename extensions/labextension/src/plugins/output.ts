import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { PANEL_MIME, PanelOutput } from '../output/panel';
import { PROGRESS_MIME, ProgressOutput } from '../output/progress';
import { IWorkbenchConnections } from '../tokens';

/** Before the widget manager's own rank, -10: where this extension runs, its panel is shown. */
const RANK = -20;

export const output: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:output',
  description: "Shows an experiment's panel, and how far a comparison is, in the output of a cell.",
  autoStart: true,
  requires: [IRenderMimeRegistry, IWorkbenchConnections],
  optional: [ITranslator],
  activate: (
    _app: JupyterFrontEnd,
    rendermime: IRenderMimeRegistry,
    connections: IWorkbenchConnections,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
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
    rendermime.addFactory(
      {
        // a text and two numbers, shown as such
        safe: true,
        mimeTypes: [PROGRESS_MIME],
        createRenderer: () => new ProgressOutput(connections, trans),
      },
      RANK,
    );
  },
};
