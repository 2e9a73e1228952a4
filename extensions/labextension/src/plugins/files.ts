import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import type { DocumentWidget } from '@jupyterlab/docregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { RecordFileFactory, type RecordFileView } from '../documents/file';
import { CAPTURE_ICONS } from '../icons';

const FACTORY = 'Workbench Record';

export const files: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:files',
  description: 'Opens saved graph, diff and memory records, without a kernel.',
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    restorer: ILayoutRestorer | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { docRegistry } = app;
    const types = [
      { kind: 'graph', displayName: trans.__('Workbench Graph') },
      { kind: 'diff', displayName: trans.__('Workbench Graph Diff') },
      { kind: 'memory', displayName: trans.__('Workbench Memory') },
    ] as const;
    for (const { kind, displayName } of types) {
      docRegistry.addFileType({
        name: `workbench-${kind}`,
        displayName,
        icon: CAPTURE_ICONS[kind],
        extensions: [`.${kind}.safetensors`],
        mimeTypes: ['application/octet-stream'],
        contentType: 'file',
        fileFormat: 'base64',
      });
    }
    const fileTypes = types.map(({ kind }) => `workbench-${kind}`);
    const factory = new RecordFileFactory(
      {
        name: FACTORY,
        label: trans.__('Workbench Record'),
        modelName: 'base64',
        fileTypes,
        defaultFor: fileTypes,
        readOnly: true,
      },
      app.commands,
      trans,
    );
    const tracker = new WidgetTracker<DocumentWidget<RecordFileView>>({
      namespace: 'workbench-record',
    });
    factory.widgetCreated.connect((_, widget) => {
      const [type] = docRegistry.getFileTypesForPath(widget.context.path);
      widget.title.icon = type?.icon;
      widget.context.pathChanged.connect(() => void tracker.save(widget));
      void tracker.add(widget);
    });
    docRegistry.addWidgetFactory(factory);
    void restorer?.restore(tracker, {
      command: 'docmanager:open',
      args: (widget) => ({ path: widget.context.path, factory: FACTORY }),
      name: (widget) => widget.context.path,
    });
  },
};
