import { NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';

const EXPERIMENT = [
  'import workbench as wb',
  '',
  'exp = wb.Experiment(model, train, val)  # your nn.Module, your data',
  'exp',
].join('\n');

const REPORT = 'wb.compile_report(exp)  # the variable that holds your experiment';

/** Puts the code of an experiment below the active cell. */
export function insertExperiment(panel: NotebookPanel): void {
  insert(panel, EXPERIMENT);
}

/** Puts the line that shows what was compiled below the active cell. */
export function insertCompileReport(panel: NotebookPanel): void {
  insert(panel, REPORT);
}

/** Running it is up to the person. */
function insert(panel: NotebookPanel, code: string): void {
  const notebook = panel.content;
  NotebookActions.insertBelow(notebook);
  notebook.activeCell?.model.sharedModel.setSource(code);
  notebook.mode = 'edit';
  notebook.activeCell?.editor?.focus();
}
