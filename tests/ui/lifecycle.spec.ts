import { expect, test } from '@jupyterlab/galata';
import {
  execute,
  experimentCode,
  longExperimentCode,
  openSidePanel,
  panelOf,
  picture,
  press,
  reloadPage,
  runAll,
  runNotebook,
  segment,
  setTheme,
  PATIENT,
  stepOf,
  lossLine,
} from './helpers';

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

    // A notebook in command mode inserts, cuts and runs cells by these.
    const cells = page.locator('.jp-Notebook:visible .jp-Cell');
    const before = await cells.count();
    const prompt = page.locator('.jp-Notebook:visible .jp-InputPrompt').first();
    const ran = await prompt.textContent();
    const toggle = segment(panel, 'Precision', 'fp32');
    await toggle.focus();
    for (const key of ['b', 'x', 'd', 'd', 'm', 'Shift+Enter', 'Control+Enter']) {
      await page.keyboard.press(key);
    }
    await expect(toggle).toBeFocused();
    await expect(cells).toHaveCount(before);
    await expect(prompt).toHaveText(ran ?? '');
  });

  test('each of two notebooks has its own; the side panel follows', async ({ page, tmpPath }) => {
    const side = await openSidePanel(page);
    const left = await runNotebook(page, `${tmpPath}/left.ipynb`, [longExperimentCode('left')]);
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

  test('draws a schedule, scales it with a rate that is typed, and ends it', async ({
    page,
    tmpPath,
  }) => {
    const code = longExperimentCode('rates').replace(
      'batch_size=32',
      'batch_size=32, scheduler=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1e-2, total_steps=32_000)',
    );
    await runNotebook(page, `${tmpPath}/rates.ipynb`, [code]);
    const panel = panelOf(page, 'rates');
    const schedule = panel.getByRole('group', { name: 'Learning-rate schedule' });
    await expect(schedule).toContainText('OneCycleLR, every step', PATIENT);
    await expect(schedule).toContainText('highest 1.0e-2');
    await expect(schedule).toContainText('last 4.0e-8', PATIENT);
    await panel.scrollIntoViewIfNeeded();
    await panel.screenshot({ path: picture('panel-schedule.png') });
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await setTheme(page, 'JupyterLab Dark');
    await panel.screenshot({ path: picture('panel-schedule-dark.png') });
    await setTheme(page, 'JupyterLab Light');

    const field = panel.getByRole('textbox', { name: 'Learning rate value' });
    await field.fill('1e-3');
    await field.press('Enter');
    await expect(
      panel.getByText(/lr 1e-3, and OneCycleLR goes on at 2\.\d+ times/).first(),
    ).toBeVisible();
    await expect(schedule).toContainText(/highest( so far)? 2\.\de-2/, PATIENT);
    await panel.screenshot({ path: picture('panel-schedule-scaled.png') });
    await press(panel, 'Replace by a constant');
    await expect(schedule).toBeHidden();
    const kept = await field.inputValue();
    const before = await stepOf(panel);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before + 20);
    await expect(field).toHaveValue(kept);
    await press(panel, 'Stop');
  });

  test('goes on after a reload in the middle of a run', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/reload.ipynb`, [longExperimentCode('reload')]);
    const panel = panelOf(page, 'reload');
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await execute(page, 'docmanager:save');
    const before = await stepOf(panel);
    await reloadPage(page);
    await expect(panel.getByRole('button', { name: 'Training' })).toBeVisible(PATIENT);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
    await expect(lossLine(panel)).toHaveAttribute('d', /^M/);
    await press(panel, 'Pause');
    await expect(panel.getByRole('button', { name: 'Resume' })).toBeEnabled();
    await press(panel, 'Stop');
  });

  test('keeps its last picture when the kernel restarts', async ({ page, tmpPath }) => {
    const file = await runNotebook(page, `${tmpPath}/again.ipynb`, [experimentCode('again')]);
    const panel = panelOf(page, 'again');
    await press(panel, 'Train');
    await expect(panel).toContainText('finished', PATIENT);
    const drawn = await lossLine(panel).getAttribute('d');
    const restarted = execute(page, 'notebook:restart-kernel');
    await page.getByRole('button', { name: 'Confirm Kernel Restart' }).click();
    await restarted;
    await expect(panel.locator('.wb-status')).toContainText('kernel restarted: run the cell again');
    await expect(lossLine(panel)).toHaveAttribute('d', drawn ?? '');
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
    const file = await runNotebook(page, `${tmpPath}/closed.ipynb`, [longExperimentCode('closed')]);
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
