import type { NotebookPanel } from '@jupyterlab/notebook';
import type { ISourceLine } from '../tokens';

/**
 * Index of the cell a source line belongs to: the one with its execution count, if that still
 * holds the line, else the one code cell that holds the line's text. -1 when the cell is gone.
 */
export function findCell(panel: NotebookPanel, source: ISourceLine): number {
  const cells = [...(panel.content.model?.cells ?? [])];
  const text = source.text?.trim() ?? '';
  const counted = cells.findIndex(
    (cell) => cell.type === 'code' && executionCount(cell) === source.cell,
  );
  if (counted >= 0 && lineOf(cells[counted], text, source.line) > 0) {
    return counted;
  }
  // Run again since, the cell carries another number; its text still identifies it.
  const holding = cells
    .map((cell, index) => (cell.type === 'code' && holds(cell, text) ? index : -1))
    .filter((index) => index >= 0);
  return holding.length === 1 ? (holding[0] as number) : counted;
}

/** Scrolls to a line of a cell and puts the cursor there. */
export async function revealLine(
  panel: NotebookPanel,
  index: number,
  source: ISourceLine,
): Promise<void> {
  const notebook = panel.content;
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  await notebook.scrollToItem(index, 'smart');
  const cell = notebook.widgets[index];
  await cell?.ready;
  const editor = cell?.editor;
  if (cell === undefined || editor == null) {
    return;
  }
  notebook.mode = 'edit';
  const line = lineOf(cell.model, source.text?.trim() ?? '', source.line) || source.line;
  const position = { line: Math.min(line, editor.lineCount) - 1, column: 0 };
  editor.focus();
  editor.setCursorPosition(position);
  editor.revealPosition(position);
}

interface ICellLike {
  sharedModel: { source: string };
}

function executionCount(cell: unknown): number | null {
  return (cell as { executionCount?: number | null }).executionCount ?? null;
}

function holds(cell: ICellLike, text: string): boolean {
  return text !== '' && cell.sharedModel.source.split('\n').some((line) => line.trim() === text);
}

/** The line, from 1, that is `text`: where it was, else nearest to it; 0 when it is not there. */
function lineOf(cell: ICellLike | undefined, text: string, line: number): number {
  const lines = cell?.sharedModel.source.split('\n') ?? [];
  if (text === '') {
    return line <= lines.length ? line : 0;
  }
  const found = lines.flatMap((one, index) => (one.trim() === text ? [index + 1] : []));
  return found.reduce((a, b) => (Math.abs(b - line) < Math.abs(a - line) ? b : a), found[0] ?? 0);
}
