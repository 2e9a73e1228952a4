import { copyFileSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, galata, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import {
  COMPILING,
  execute,
  openSidePanel,
  picture,
  reloadPage,
  runAll,
  segment,
  setTheme,
  PATIENT,
  stepOf,
  lossLine,
} from './helpers';
import { drawings } from './notebook';

interface Cell {
  readonly cell_type: string;
  readonly source: string | readonly string[];
  outputs?: unknown[];
  execution_count?: number | null;
}

const checkout = path.resolve(__dirname, '../..');
const stored = JSON.parse(
  readFileSync(path.join(checkout, 'notebooks/01_first_classifier.ipynb'), 'utf8'),
) as { cells: Cell[] };

// A control that cannot be pressed fails its step, not the whole test's time.
test.use({
  actionTimeout: 20_000,
  // JupyterLab saves by itself after two minutes. A save of ours at that very moment would find a
  // file newer than the one it knows, and ask what to do.
  mockSettings: {
    ...galata.DEFAULT_SETTINGS,
    '@jupyterlab/docmanager-extension:plugin': { autosave: false },
  },
});

test.describe('The first classifier', { tag: '@journey' }, () => {
  test('is built, trained, watched and switched from the panel', async ({ page, tmpPath }) => {
    const panel = await test.step('the cells up to the panel are run', async () => {
      await openCells(page, `${tmpPath}/first.ipynb`, upToPanel(stored.cells));
      const side = await openSidePanel(page);
      await expect(side.getByRole('option')).toContainText('early-exit', PATIENT);
      const shown = panelOf(page);
      await expect(button(shown, 'Train')).toBeEnabled(PATIENT);
      await shown.scrollIntoViewIfNeeded();
      return shown;
    });

    await test.step('Train makes the curve move', async () => {
      await fillIn(panel, 'Epochs', '3000');
      // Slow enough that the curve is still falling when it is looked at.
      await fillIn(panel, 'Learning rate value', '1e-4');
      await button(panel, 'Train').click();
      await expect(button(panel, 'Training')).toBeVisible();
      await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
      const line = lossLine(panel);
      const before = (await line.getAttribute('d')) ?? '';
      expect(before).toMatch(/^M/);
      await expect(line).not.toHaveAttribute('d', before);
    });

    await test.step('Pause holds the step, Step makes one, Resume goes on', async () => {
      await button(panel, 'Pause').click();
      await expect(button(panel, 'Resume')).toBeEnabled();
      const paused = await stepOf(panel);
      await button(panel, 'Step').click();
      await expect.poll(() => stepOf(panel)).toBe(paused + 1);
      await button(panel, 'Resume').click();
      await expect.poll(() => stepOf(panel)).toBeGreaterThan(paused + 20);
    });

    await test.step('the memory of a step is shown beside the curve', async () => {
      const memory = panel.getByRole('figure', { name: /^Memory of step \d+: peak/ });
      await expect(memory).toContainText('activations');
    });

    await test.step('bf16 and compile, mid-run, are measured', async () => {
      await choose(panel, 'Precision', 'bf16');
      await expect(effect(panel, 'Precision')).toHaveText(MEASURED, PATIENT);
      await choose(panel, 'Compile', 'blocks');
      await expect(effect(panel, 'Compile')).toHaveText(MEASURED, COMPILING);
      await expect(button(panel, 'Training')).toBeVisible();
      const side = await openSidePanel(page);
      await expect(segment(side, 'Compile', 'blocks')).toBeChecked();
      await expect(segment(side, 'Precision', 'bf16')).toBeChecked();
    });

    await test.step('it looks as it should, in both themes', () => takePictures(page, panel));

    await test.step('Graph opens in a tab, and a module of it opens', async () => {
      await button(panel, 'Graph').click();
      // A compiled step is compiled once more for it.
      await expect(page.getByRole('tab', { name: /early-exit · step [\d,]+ · graph/ })).toBeVisible(
        COMPILING,
      );
      const view = document(page);
      await expect(view.getByRole('treeitem').filter({ hasText: 'body' }).first()).toBeVisible(
        PATIENT,
      );
      await expandInGraph(view, 'body');
      await page.screenshot({ path: picture('journey-graph.png') });
    });

    await test.step('Memory opens in a tab with the peak of the step', async () => {
      await backToNotebook(page);
      await button(panel, 'Memory').click();
      // A compiled step is compiled once more for it.
      await expect(
        page.getByRole('tab', { name: /early-exit · step [\d,]+ · memory/ }),
      ).toBeVisible(COMPILING);
      await expect(document(page).locator('canvas').first()).toBeVisible();
      await expect(document(page)).toContainText(/peak/i);
      await page.screenshot({ path: picture('journey-memory.png') });
    });

    await test.step('TensorBoard draws a chart of this run', async () => {
      await backToNotebook(page);
      await button(panel, 'TensorBoard').click();
      await seeChart(page);
      await page.screenshot({ path: picture('journey-tensorboard.png') });
    });

    await test.step('a reload in the middle of the run brings everything back', async () => {
      await backToNotebook(page);
      await execute(page, 'docmanager:save');
      const before = await stepOf(panel);
      await reloadPage(page);
      const side = await openSidePanel(page);
      await expect(side.getByRole('option')).toContainText('early-exit', PATIENT);
      await backToNotebook(page);
      await expect(button(panel, 'Training')).toBeVisible(PATIENT);
      await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
      await expect(segment(panel, 'Compile', 'blocks')).toBeChecked();
      await expect(page.getByRole('tab', { name: /early-exit · .* graph/ })).toHaveCount(1);
      await expect(page.getByRole('tab', { name: /early-exit · .* memory/ })).toHaveCount(1);
      await panel.scrollIntoViewIfNeeded();
      await page.screenshot({ path: picture('journey-reloaded.png') });
      await button(panel, 'Stop').click();
      await expect(button(panel, 'Train')).toBeEnabled();
    });
  });

  test('the stored notebook runs from top to bottom', async ({ page, tmpPath }) => {
    await openCells(page, `${tmpPath}/01_first_classifier.ipynb`, stored.cells);
    // The last code cell requests TensorBoard, which opens where the person looks.
    const last = page.locator('.jp-Notebook .jp-CodeCell').last();
    await expect(last.locator('.jp-InputPrompt')).toHaveText(/\[\d+\]:/, COMPILING);
    await expect(page.locator('.jp-Notebook')).toContainText(
      /best validation accuracy (9[7-9]|100)\.\d%/,
    );
    await expect(page.locator('.jp-Notebook .jp-mod-error, .jp-OutputArea-error')).toHaveCount(0);
    expect(await drawings(page)).toBeGreaterThanOrEqual(3);
    const run = `${tmpPath}/runs/early-exit`;
    expect(JSON.parse(await read(page, `${run}/run.json`))).toMatchObject({ status: 'finished' });
    expect(await names(page, run)).toContainEqual(
      expect.stringMatching(/^events\.out\.tfevents\./),
    );
    await seeChart(page);
    await page.screenshot({ path: picture('journey-stored.png') });
  });
});

/** What a badge says once there are enough steps on both sides, whatever this machine measured. */
const MEASURED = /\d× faster|\d× slower|no clear effect|unclear/;

/** The cells that lead to the panel: from there on a person takes over. */
function upToPanel(cells: readonly Cell[]): Cell[] {
  const isPanel = (cell: Cell) => text(cell).includes('wb.Experiment(');
  return cells.slice(0, cells.findIndex(isPanel) + 1);
}

function text({ source }: Cell): string {
  return typeof source === 'string' ? source : source.join('');
}

async function openCells(
  page: IJupyterLabPageFixture,
  file: string,
  cells: readonly Cell[],
): Promise<void> {
  const blank = cells.map((cell) =>
    cell.cell_type === 'code' ? { ...cell, outputs: [], execution_count: null } : cell,
  );
  const kernelspec = { name: 'python3', display_name: 'Python 3', language: 'python' };
  const notebook = { cells: blank, metadata: { kernelspec }, nbformat: 4, nbformat_minor: 5 };
  await page.contents.uploadContent(JSON.stringify(notebook), 'text', file);
  await execute(page, 'docmanager:open', { path: file, factory: 'Notebook' });
  await page.sidebar.close('left');
  await runAll(page, file);
}

/** A file, as the server has it. */
async function read(page: IJupyterLabPageFixture, file: string): Promise<string> {
  return page.evaluate(async (wanted) => {
    const { contents } = window.jupyterapp.serviceManager;
    return (await contents.get(wanted, { type: 'file', format: 'text', content: true }))
      .content as string;
  }, file);
}

/** What is in a folder. */
async function names(page: IJupyterLabPageFixture, folder: string): Promise<string[]> {
  return page.evaluate(async (wanted) => {
    const found = await window.jupyterapp.serviceManager.contents.get(wanted, { content: true });
    return (found.content as { name: string }[]).map(({ name }) => name);
  }, folder);
}

function panelOf(page: IJupyterLabPageFixture): Locator {
  return page.locator('.jp-Notebook').getByRole('region', { name: /^Experiment early-exit/ });
}

function document(page: IJupyterLabPageFixture): Locator {
  return page.locator('.jp-Workbench-document:visible');
}

function button(panel: Locator, name: string): Locator {
  return panel.getByRole('button', { name, exact: true });
}

async function fillIn(panel: Locator, name: string, value: string): Promise<void> {
  const field = panel.getByRole('textbox', { name, exact: true });
  await field.fill(value);
  await field.press('Enter');
}

async function choose(panel: Locator, mode: string, value: string): Promise<void> {
  await segment(panel, mode, value).click();
  await expect(segment(panel, mode, value)).toBeChecked(COMPILING);
}

/** The first line of a mode's badge. */
function effect(panel: Locator, mode: string): Locator {
  const choices = panel.page().getByRole('radiogroup', { name: mode });
  return panel.locator('.wb-mode', { has: choices }).locator('.wb-badge strong');
}

/** Waits for the first chart that TensorBoard itself draws in its tab. */
async function seeChart(page: IJupyterLabPageFixture): Promise<void> {
  const frame = page.frameLocator('.jp-Workbench-tensorboard iframe');
  const card = frame.locator('scalar-card').first();
  await expect(card).toBeVisible(PATIENT);
  await expect(card.locator('line-chart canvas, line-chart svg').first()).toBeVisible();
  await expect(card.locator('line-chart .axis.x-axis')).toContainText(/\d/);
  // Away from the chart, which would show what the pointer is over.
  await page.mouse.move(0, 0);
}

async function backToNotebook(page: IJupyterLabPageFixture): Promise<void> {
  await page.getByRole('tab', { name: 'first.ipynb' }).click();
}

/** Opens a module in the drawing by the keyboard; its operations are then rows of the table. */
async function expandInGraph(view: Locator, module: string): Promise<void> {
  await view.getByRole('treeitem').filter({ hasText: module }).first().click();
  const canvas = view.locator('canvas[role=application]');
  const table = view.getByRole('toolbar', { name: 'Graph' }).getByRole('button', { name: 'Table' });
  const row = view.getByRole('row').filter({ hasText: module }).first();
  await table.click();
  const before = await row.getAttribute('aria-expanded');
  const rows = await view.getByRole('row').count();
  await table.click();
  await canvas.focus();
  await canvas.press('Enter');
  await table.click();
  await expect(row).toHaveAttribute('aria-expanded', before === 'true' ? 'false' : 'true');
  expect(await view.getByRole('row').count()).not.toBe(rows);
  await table.click();
  if (before === 'true') await canvas.press('Enter');
}

/** The README shows the panel; its picture changes only where that is requested. */
async function takePictures(page: IJupyterLabPageFixture, panel: Locator): Promise<void> {
  await panel.evaluate((node) => node.scrollIntoView({ block: 'end' }));
  await page.screenshot({ path: picture('journey-light.png') });
  const image = picture('panel.png');
  await panel.screenshot({ path: image });
  if (process.env.WORKBENCH_UPDATE_IMAGES !== undefined) {
    const images = path.join(checkout, 'docs/images');
    mkdirSync(images, { recursive: true });
    copyFileSync(image, path.join(images, 'panel.png'));
  }
  await setTheme(page, 'JupyterLab Dark');
  await page.screenshot({ path: picture('journey-dark.png') });
  await setTheme(page, 'JupyterLab Light');
}
