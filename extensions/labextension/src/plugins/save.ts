import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Clipboard, ICommandPalette, Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { currentRecord } from '../documents/current';
import { type IFormat, FORMATS, formatLabel, formatOf } from '../documents/formats';
import { lineFor, make, whyNot } from '../documents/make';
import { saveFile } from '../documents/save';
import { reporting } from '../report';
import { CommandIDs } from '../tokens';

export const save: JupyterFrontEndPlugin<void> = {
  id: 'torch-workbench:save',
  description: 'Saves the graph, diff or memory of a tab: as record, picture, Graphviz, JSON.',
  autoStart: true,
  optional: [ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
  ) => {
    const trans = (translator ?? nullTranslator).load('torch-workbench');
    const { commands, shell, serviceManager } = app;
    const category = trans.__('Workbench');

    function reason(format: IFormat): string {
      const panel = currentRecord(shell);
      return panel === null
        ? trans.__('The tab in front shows no capture.')
        : whyNot(panel, format, trans);
    }

    async function saveAs(format: IFormat): Promise<string> {
      const panel = currentRecord(shell);
      if (panel === null) {
        throw new Error(trans.__('The tab in front shows no capture.'));
      }
      const { folder, name } = panel.place;
      const { bytes, ending } = await make(panel, format, trans);
      const path = await saveFile(serviceManager.contents, folder, name, ending, bytes);
      const open = { label: trans.__('Open'), callback: () => void openFile(path) };
      Notification.success(trans.__('Saved as %1', path), { autoClose: 5000, actions: [open] });
      return path;
    }

    function openFile(path: string): Promise<unknown> {
      return commands.execute('docmanager:open', { path });
    }

    commands.addCommand(CommandIDs.exportAs, {
      label: (args) => {
        const label = formatLabel(
          formatOf(args['format']),
          currentRecord(shell)?.record.kind ?? null,
          trans,
        );
        return args['isPalette'] === true ? trans.__('Export: %1', label) : label;
      },
      caption: (args) => reason(formatOf(args['format'])),
      isEnabled: (args) => reason(formatOf(args['format'])) === '',
      execute: reporting((args) => saveAs(formatOf(args['format']))),
    });
    for (const { id } of FORMATS) {
      const args = { format: id, isPalette: true };
      palette?.addItem({ command: CommandIDs.exportAs, args, category });
    }

    commands.addCommand(CommandIDs.saveCapture, {
      label: trans.__('Save Capture as a File'),
      caption: trans.__('Save the record of this tab next to its notebook'),
      isEnabled: () => reason(formatOf('record')) === '',
      execute: reporting(() => saveAs(formatOf('record'))),
    });
    palette?.addItem({ command: CommandIDs.saveCapture, category });
    const selector = '.jp-Workbench-document';
    app.contextMenu.addItem({ command: CommandIDs.saveCapture, selector, rank: 0 });

    commands.addCommand(CommandIDs.copyExportLine, {
      label: trans.__('Copy the Python Line for a PDF'),
      caption: () => {
        const panel = currentRecord(shell);
        return panel === null ? '' : lineFor(panel, formatOf('pdf'));
      },
      isEnabled: () => currentRecord(shell)?.record.kind != null,
      // With its kernel there, a capture has no file yet that a line of Python could name.
      isVisible: () => reason(formatOf('pdf')) !== '',
      execute: () => {
        const panel = currentRecord(shell);
        if (panel !== null) {
          const line = lineFor(panel, formatOf('pdf'));
          Clipboard.copyToSystem(line);
          Notification.success(trans.__('Copied: %1', line), { autoClose: 5000 });
        }
      },
    });
    palette?.addItem({ command: CommandIDs.copyExportLine, category });

    shell.currentChanged?.connect(() => {
      for (const id of [CommandIDs.exportAs, CommandIDs.saveCapture, CommandIDs.copyExportLine]) {
        commands.notifyCommandChanged(id);
      }
    });
  },
};
