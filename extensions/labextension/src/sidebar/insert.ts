import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';

const CODE = [
  'import workbench as wb',
  '',
  'exp = wb.Experiment(model, train, val)  # your nn.Module, your data',
  'exp',
].join('\n');

/** Puts the code of an experiment below the active cell. Running it is up to the person. */
export function insertExperiment(panel: NotebookPanel): void {
  const notebook = panel.content;
  NotebookActions.insertBelow(notebook);
  notebook.activeCell?.model.sharedModel.setSource(CODE);
  notebook.mode = 'edit';
  notebook.activeCell?.editor?.focus();
}
