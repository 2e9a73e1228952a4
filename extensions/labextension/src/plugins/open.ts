import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { DocumentWidget } from '@jupyterlab/docregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { findCell, revealLine } from '../documents/goto';
import { notebookOf, OPEN_EVENT, readRequest } from '../documents/request';
import { report, reporting } from '../report';
import { WorkbenchServer } from '../server';
import {
  CommandIDs,
  type IConnection,
  type IOpenRequest,
  type ISourceLine,
  IWorkbenchConnections,
} from '../tokens';

export const open: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:open',
  description: 'Opens what a view requests: a capture, TensorBoard, a line of code.',
  autoStart: true,
  requires: [IWorkbenchConnections],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    connections: IWorkbenchConnections,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { commands } = app;
    const server = new WorkbenchServer(trans, app.serviceManager.serverSettings);

    function connectionOf(event: Event): IConnection | null {
      const path = notebookOf(event);
      if (path !== null) {
        return connections.forPath(path);
      }
      const target = event.composedPath()[0];
      return (target instanceof Node ? connections.forNode(target) : null) ?? connections.current;
    }

    /** `path` is the notebook's where the view says so, open or not. */
    function serve(
      request: IOpenRequest,
      connection: IConnection | null,
      path: string | null,
    ): Promise<unknown> {
      const { experiment, capture, source } = request;
      const notebook = connection?.path;
      switch (request.kind) {
        case 'graph':
        case 'memory': {
          const command = request.kind === 'graph' ? CommandIDs.openGraph : CommandIDs.openMemory;
          return commands.execute(command, { notebook, experiment, capture });
        }
        case 'diff':
          return commands.execute(CommandIDs.compareGraphs, {
            notebook,
            experiment,
            capture,
            compare: request.compare as [string, string],
          });
        case 'memory-diff':
          return commands.execute(CommandIDs.compareMemory, {
            notebook,
            experiment,
            compare: request.compare as [string, string],
          });
        case 'tensorboard':
          return request.path === undefined
            ? commands.execute(CommandIDs.openRunTensorBoard, { notebook, experiment })
            : commands.execute(CommandIDs.openTensorBoard, { logdir: request.path });
        case 'goto':
          return commands.execute(CommandIDs.goto, {
            notebook: notebook ?? path,
            source: { ...source },
          });
      }
    }

    commands.addCommand(CommandIDs.goto, {
      label: trans.__('Go to Source Line'),
      caption: trans.__('Show the line of code that a view refers to'),
      execute: reporting(async (args) => {
        const source = args['source'] as unknown as ISourceLine;
        const path = args['notebook'];
        await (source.cell == null ? goToFile(source) : goToCell(source, await notebookAt(path)));
      }),
    });

    /** The notebook a view belongs to, opened again where it was closed; else the one in front. */
    async function notebookAt(path: unknown): Promise<IConnection | null> {
      if (typeof path !== 'string' || path === '') {
        return connections.current;
      }
      if (connections.forPath(path) === null) {
        await openDocument({ path });
      }
      return connections.forPath(path);
    }

    /** Opens a document or shows it, and waits until it is filled. */
    async function openDocument(args: { path: string; factory?: string }): Promise<void> {
      const opened: unknown = await commands.execute('docmanager:open', args);
      if (opened instanceof DocumentWidget) {
        await opened.context.ready;
        await opened.revealed;
      }
    }

    async function goToCell(source: ISourceLine, connection: IConnection | null): Promise<void> {
      const index = connection === null ? -1 : findCell(connection.panel, source);
      if (connection === null || index < 0) {
        throw new Error(
          trans.__('Cell [%1] is not in this notebook any more.', String(source.cell)),
        );
      }
      app.shell.activateById(connection.panel.id);
      await revealLine(connection.panel, index, source);
    }

    async function goToFile(source: ISourceLine): Promise<void> {
      const path = await server.contentsPath(source.filename);
      if (path === null) {
        throw new Error(
          trans.__('%1 is outside the folder that JupyterLab serves.', source.filename),
        );
      }
      await openDocument({ path, factory: 'Editor' });
      // Notebook 7 opens a file in a page of its own, which does not accept a line.
      if (commands.hasCommand('fileeditor:go-to-line')) {
        await commands.execute('fileeditor:go-to-line', { line: source.line, column: 1 });
      }
    }

    document.body.addEventListener(OPEN_EVENT, (event) => {
      const request = readRequest(event);
      if (request !== null) {
        event.preventDefault();
        serve(request, connectionOf(event), notebookOf(event)).catch(report);
      }
    });
  },
};
