import { expect, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import {
  execute,
  experimentCode,
  openSidePanel,
  picture,
  reloadPage,
  runAll,
  runNotebook,
} from './helpers';

const PATIENT = { timeout: 60_000 };
// A control that cannot be pressed fails at once, not when the whole test's time is over.
test.use({ actionTimeout: 20_000 });

test.describe('The panel of a notebook', () => {
  test('is the same as the side panel, each following the other', async ({ page, tmpPath }) => {
    const side = await openSidePanel(page);
    await runNotebook(page, `${tmpPath}/both.ipynb`, [experimentCode('both')]);
    const panel = panelOf(page, 'both');
    await expect(panel).toBeVisible(PATIENT);

    await segment(side, 'Precision', 'bf16').click();
    await expect(segment(panel, 'Precision', 'bf16')).toBeChecked();
    await segment(panel, 'Precision', 'fp32').click();
    await expect(segment(side, 'Precision', 'fp32')).toBeChecked();
    await expect(segment(side, 'Precision', 'bf16')).not.toBeChecked();
  });

  test('each of two notebooks has its own; the side panel follows', async ({ page, tmpPath }) => {
    const side = await openSidePanel(page);
    const left = await runNotebook(page, `${tmpPath}/left.ipynb`, [experimentCode('left', 3000)]);
    await press(panelOf(page, 'left'), 'Train');
    await expect(panelOf(page, 'left').getByRole('button', { name: 'Training' })).toBeVisible();
    await runNotebook(page, `${tmpPath}/right.ipynb`, [experimentCode('right')]);
    await expect(side.getByRole('option')).toContainText('right', PATIENT);
    await segment(side, 'Precision', 'bf16').click();
    await expect(segment(panelOf(page, 'right'), 'Precision', 'bf16')).toBeChecked();

    await execute(page, 'docmanager:open', { path: left });
    await expect(side.getByRole('option')).toContainText('left');
    await expect(segment(side, 'Precision', 'fp32')).toBeChecked();
    const panel = panelOf(page, 'left');
    const before = await stepOf(panel);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
    await press(panel, 'Stop');
  });

  test('goes on after a reload in the middle of a run', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/reload.ipynb`, [experimentCode('reload', 5000)]);
    const panel = panelOf(page, 'reload');
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await execute(page, 'docmanager:save');
    const before = await stepOf(panel);
    await reloadPage(page);
    await expect(panel.getByRole('button', { name: 'Training' })).toBeVisible(PATIENT);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
    await expect(panel.locator('svg.plot path.smooth')).toHaveAttribute('d', /^M/);
    await press(panel, 'Pause');
    await expect(panel.getByRole('button', { name: 'Resume' })).toBeEnabled();
    await press(panel, 'Stop');
  });

  test('keeps its last picture when the kernel restarts', async ({ page, tmpPath }) => {
    const file = await runNotebook(page, `${tmpPath}/again.ipynb`, [experimentCode('again')]);
    const panel = panelOf(page, 'again');
    await press(panel, 'Train');
    await expect(panel).toContainText('finished', PATIENT);
    const drawn = await panel.locator('svg.plot path.smooth').getAttribute('d');
    const restarted = execute(page, 'notebook:restart-kernel');
    await page.getByRole('button', { name: 'Confirm Kernel Restart' }).click();
    await restarted;
    await expect(panel.locator('.wb-status')).toContainText('kernel restarted: run the cell again');
    await expect(panel.locator('svg.plot path.smooth')).toHaveAttribute('d', drawn ?? '');
    await expect(panel.getByRole('button', { name: 'Train' })).toBeDisabled();
    await page.screenshot({ path: picture('kernel-restarted.png') });

    // JupyterLab 4.6 may leave its connection in "restarting", with and without this extension.
    await execute(page, 'notebook:reconnect-to-kernel');
    await runAll(page, file);
    // A new experiment, so a new run: the one before stays on disk under its name.
    const fresh = panelOf(page, 'again-2');
    await expect(fresh.getByRole('button', { name: 'Train' })).toBeEnabled(PATIENT);
    await expect(fresh).toContainText('not started');
  });

  test('keeps training while its notebook is closed', async ({ page, tmpPath }) => {
    const file = await runNotebook(page, `${tmpPath}/closed.ipynb`, [
      experimentCode('closed', 5000),
    ]);
    const side = await openSidePanel(page);
    const panel = panelOf(page, 'closed');
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    const before = await stepOf(panel);
    await execute(page, 'docmanager:save');
    await execute(page, 'application:close');
    await expect(side).toContainText('Open a notebook to see its experiments.');

    await execute(page, 'docmanager:open', { path: file, factory: 'Notebook' });
    await expect(panel.getByRole('button', { name: 'Training' })).toBeVisible(PATIENT);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
    await expect(side.getByRole('option')).toContainText('closed');
    await press(panel, 'Stop');
  });
});

function panelOf(page: IJupyterLabPageFixture, name: string): Locator {
  const notebook = page.locator('.jp-Notebook:visible');
  return notebook.getByRole('region', { name: new RegExp(`^Experiment ${name}:`) });
}

async function press(panel: Locator, name: string): Promise<void> {
  await panel.getByRole('button', { name, exact: true }).click();
}

function segment(within: Locator, mode: string, value: string): Locator {
  return within.getByRole('radiogroup', { name: mode }).getByRole('radio', { name: value });
}

/** The step that the panel shows, as its progress bar says it to a screen reader. */
async function stepOf(panel: Locator): Promise<number> {
  return Number(await panel.getByRole('progressbar').getAttribute('aria-valuenow'));
}
