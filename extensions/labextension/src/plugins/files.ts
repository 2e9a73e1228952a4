import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import type { DocumentRegistry, DocumentWidget } from '@jupyterlab/docregistry';
import { ITranslator, nullTranslator, type TranslationBundle } from '@jupyterlab/translation';
import { RecordFileView } from '../documents/file';
import { MemoryFileView } from '../documents/memory-file';
import { PanelFactory } from '../documents/panel-factory';
import { UNREAD, UnreadModelFactory } from '../documents/unread';
import { CAPTURE_ICONS, compareIcon, compileIcon } from '../icons';
import { WorkbenchServer } from '../server';

const RECORDS = 'Workbench Record';
const MEMORY = 'Workbench Memory';

export const files: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:files',
  description: 'Opens saved records and allocator snapshots, without a kernel.',
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    restorer: ILayoutRestorer | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { docRegistry, serviceManager, commands } = app;
    for (const type of fileTypes(trans)) {
      docRegistry.addFileType(type);
    }
    const plain = ['workbench-graph', 'workbench-diff', 'workbench-compile', 'workbench-compare'];
    const records = new PanelFactory(
      {
        name: RECORDS,
        label: trans.__('Workbench Record'),
        modelName: 'base64',
        fileTypes: plain,
        defaultFor: plain,
        readOnly: true,
      },
      (context) => new RecordFileView(context, commands, trans),
    );
    const server = new WorkbenchServer(trans, serviceManager.serverSettings);
    const ours = ['workbench-memory', 'workbench-snapshot'];
    const memory = new PanelFactory(
      {
        name: MEMORY,
        label: trans.__('Workbench Memory'),
        modelName: UNREAD,
        // A pickle may be anything: it is opened here by "Open With" alone.
        fileTypes: [...ours, 'workbench-pickle'],
        defaultFor: ours,
        readOnly: true,
      },
      (context) => new MemoryFileView(context, server, serviceManager.contents, commands, trans),
    );
    docRegistry.addModelFactory(new UnreadModelFactory());
    add(app, restorer, RECORDS, 'workbench-record', records);
    add(app, restorer, MEMORY, 'workbench-memory', memory);
  },
};

function fileTypes(trans: TranslationBundle): Partial<DocumentRegistry.IFileType>[] {
  const binary = {
    mimeTypes: ['application/octet-stream'],
    contentType: 'file',
    fileFormat: 'base64',
  } as const;
  const records = [
    { kind: 'graph', displayName: trans.__('Workbench Graph') },
    { kind: 'diff', displayName: trans.__('Workbench Graph Diff') },
    { kind: 'memory', displayName: trans.__('Workbench Memory') },
  ] as const;
  return [
    ...records.map(({ kind, displayName }) => ({
      ...binary,
      name: `workbench-${kind}`,
      displayName,
      icon: CAPTURE_ICONS[kind],
      extensions: [`.${kind}.safetensors`],
    })),
    {
      ...binary,
      name: 'workbench-compile',
      displayName: trans.__('Workbench Compile Report'),
      icon: compileIcon,
      extensions: [],
      // By itself, and behind a name: compile.safetensors, net.compile.safetensors.
      pattern: '(^|\\.)compile\\.safetensors$',
    },
    {
      ...binary,
      name: 'workbench-compare',
      displayName: trans.__('Workbench Comparison'),
      icon: compareIcon,
      extensions: [],
      pattern: '(^|\\.)compare\\.safetensors$',
    },
    {
      ...binary,
      name: 'workbench-snapshot',
      displayName: trans.__('Allocator Snapshot'),
      icon: CAPTURE_ICONS.memory,
      extensions: [],
      // As torch's own documentation names them: snapshot.pickle, my_snapshot.pickle.
      pattern: '[sS]napshot[^/]*\\.pickle$',
    },
    {
      ...binary,
      name: 'workbench-pickle',
      displayName: trans.__('Pickle'),
      extensions: ['.pickle', '.pkl'],
    },
  ];
}

/** Registers a factory, and brings the tabs it made back after a reload. */
function add(
  { docRegistry }: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  factory: string,
  namespace: string,
  maker: PanelFactory,
): void {
  const tracker = new WidgetTracker<DocumentWidget>({ namespace });
  maker.widgetCreated.connect((_, widget) => {
    const [type] = docRegistry.getFileTypesForPath(widget.context.path);
    widget.title.icon = factory === MEMORY ? CAPTURE_ICONS.memory : type?.icon;
    widget.context.pathChanged.connect(() => void tracker.save(widget));
    void tracker.add(widget);
  });
  docRegistry.addWidgetFactory(maker);
  void restorer?.restore(tracker, {
    command: 'docmanager:open',
    args: (widget) => ({ path: widget.context.path, factory }),
    name: (widget) => widget.context.path,
  });
}
