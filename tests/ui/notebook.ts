/** A notebook in JupyterLab: those that are shipped, what their cells say, and where they lead. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { runNotebook } from './helpers';

/** The code of every cell of a notebook that is shipped. */
export function codeOf(name: string): string[] {
  const file = path.resolve(__dirname, '../../notebooks', name);
  const stored = JSON.parse(readFileSync(file, 'utf8')) as {
    cells: { cell_type: string; source: string | string[] }[];
  };
  return stored.cells
    .filter(({ cell_type: type }) => type === 'code')
    .map(({ source }) => [source].flat().join(''));
}

/** Runs cells from top to bottom, in a notebook that is then in front; none may fail. */
export async function runWhole(
  page: IJupyterLabPageFixture,
  file: string,
  cells: readonly string[],
  within: { timeout: number },
): Promise<void> {
  await page.sidebar.close('left');
  await runNotebook(page, file, cells);
  await expect.poll(() => executed(page), within).toBe(cells.length);
  expect(await errors(page)).toEqual([]);
}

export function activeCell(page: IJupyterLabPageFixture): Locator {
  return page.locator('.jp-Notebook .jp-Cell.jp-mod-active');
}

/** The line, from 1, at which the cursor of the notebook in front stands. */
export async function cursorLine(page: IJupyterLabPageFixture): Promise<number> {
  return page.evaluate(() => {
    const panel = window.jupyterapp.shell.currentWidget as unknown as {
      content: { activeCell: { editor: { getCursorPosition(): { line: number } } } };
    };
    return panel.content.activeCell.editor.getCursorPosition().line + 1;
  });
}

interface Panel {
  content: {
    model: { cells: Iterable<{ sharedModel: { toJSON(): CellContent } }> };
    widgets: { node: HTMLElement }[];
    scrollToItem(index: number, how: string): Promise<void>;
  };
}

interface CellContent {
  execution_count: number | null;
  /** Text has none. */
  outputs?: {
    output_type: string;
    evalue?: string;
    text?: string | string[];
    data?: Record<string, string | string[]>;
  }[];
}

async function contents(page: IJupyterLabPageFixture): Promise<Required<CellContent>[]> {
  return page.evaluate(() => {
    const { shell } = window.jupyterapp;
    const panel = [shell.currentWidget, ...shell.widgets('main')]
      .map((widget) => widget as unknown as Partial<Panel> | null)
      .find((widget): widget is Panel => widget?.content?.model?.cells !== undefined);
    if (panel === undefined) throw new Error('no notebook is open');
    return [...panel.content.model.cells]
      .map((cell) => cell.sharedModel.toJSON())
      .filter((cell): cell is Required<CellContent> => cell.outputs !== undefined);
  });
}

/** How many cells of the notebook in front, or behind another tab, have run. */
export async function executed(page: IJupyterLabPageFixture): Promise<number> {
  return (await contents(page)).filter((cell) => cell.execution_count !== null).length;
}

export async function errors(page: IJupyterLabPageFixture): Promise<unknown[]> {
  const outputs = (await contents(page)).flatMap((cell) => cell.outputs);
  return outputs.filter((output) => output.output_type === 'error').map(({ evalue }) => evalue);
}

/** What the cells of the notebook in front wrote, and the text beside every picture. */
export async function printed(page: IJupyterLabPageFixture): Promise<string> {
  const outputs = (await contents(page)).flatMap((cell) => cell.outputs);
  return outputs.flatMap((output) => output.text ?? output.data?.['text/plain'] ?? []).join('');
}

/** How many outputs of the notebook in front hold a drawing that is there without a kernel, too. */
export async function drawings(page: IJupyterLabPageFixture): Promise<number> {
  const outputs = (await contents(page)).flatMap((cell) => cell.outputs);
  return outputs.filter((output) =>
    String(output.data?.['text/html']).includes('data:image/svg+xml;base64,'),
  ).length;
}

/** A cell of the notebook in front, brought into view: JupyterLab has only those in the page. */
export async function scrolledTo(page: IJupyterLabPageFixture, index: number): Promise<Locator> {
  await page.evaluate(async (wanted) => {
    const panel = window.jupyterapp.shell.currentWidget as unknown as Panel;
    await panel.content.scrollToItem(wanted, 'start');
  }, index);
  return page.locator(`.jp-Notebook .jp-Cell[data-windowed-list-index="${index}"]`);
}
