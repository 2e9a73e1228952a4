import { expect, test } from '@jupyterlab/galata';
import {
  execute,
  experimentCode,
  longExperimentCode,
  openSidePanel,
  PATIENT,
  picture,
  reloadPage,
  runAll,
  runNotebook,
  setTheme,
} from './helpers';

test.describe('Side panel', () => {
  test('says what to do while there is nothing to show', async ({ page, tmpPath }) => {
    const panel = await openSidePanel(page);
    await expect(panel).toContainText('Open a notebook to see its experiments.');
    await expect(panel.getByRole('button', { name: 'New classifier notebook' })).toBeVisible();

    await runNotebook(page, `${tmpPath}/plain.ipynb`, ['1 + 1']);
    await expect(panel).toContainText('There is no experiment in this kernel yet.');
    await panel.getByRole('button', { name: 'Insert a cell that makes one' }).click();
    await expect(page.locator('.jp-Notebook')).toContainText('wb.Experiment(model, train, val)');
    await page.screenshot({ path: picture('side-panel-empty.png') });
  });

  test('asks nothing of a kernel that has not imported Workbench', async ({ page, tmpPath }) => {
    const complaints: string[] = [];
    page.on('console', (message) => {
      if (/comm/i.test(message.text())) {
        complaints.push(message.text());
      }
    });
    await runNotebook(page, `${tmpPath}/plain.ipynb`, ['"workbench"', 'print("done")']);
    await expect(page.locator('.jp-OutputArea-output').last()).toHaveText('done\n');
    expect(complaints).toEqual([]);
  });

  test('follows the active notebook', async ({ page, tmpPath }) => {
    const panel = await openSidePanel(page);
    const alpha = await runNotebook(page, `${tmpPath}/alpha.ipynb`, [experimentCode('alpha')]);
    await expect(panel).toContainText('alpha');
    await runNotebook(page, `${tmpPath}/beta.ipynb`, [
      experimentCode('beta'),
      experimentCode('gamma'),
    ]);
    await expect(panel).toContainText('gamma');
    await expect(panel).toContainText('2 in this kernel');
    await expect(panel).not.toContainText('alpha');

    await execute(page, 'docmanager:open', { path: alpha });
    await expect(panel).toContainText('1 in this kernel');
    await expect(panel).toContainText('alpha');

    await execute(page, 'docmanager:save');
    await execute(page, 'application:close');
    await expect(panel).toContainText('gamma');
  });

  test('trains from a command, shows progress, and is back after a reload', async ({
    page,
    tmpPath,
  }) => {
    const panel = await openSidePanel(page);
    await runNotebook(page, `${tmpPath}/train.ipynb`, [longExperimentCode('long')]);
    await expect(panel).toContainText('long');
    await execute(page, 'workbench:toggle-training');
    const status = page.locator('.jp-Workbench-status');
    await expect(status).toContainText(/training [\d,]+\/32,000, .* samples\/s/);
    await page.screenshot({ path: picture('side-panel-light.png') });

    await reloadPage(page);
    await expect(status).toContainText(/training [\d,]+\/32,000/, PATIENT);
    await expect(await openSidePanel(page)).toContainText('long');

    await execute(page, 'workbench:toggle-training');
    await expect(status).toContainText(/paused [\d,]+\/32,000/);
    const paused = await status.textContent();
    await execute(page, 'workbench:step');
    await expect(status).not.toHaveText(paused ?? '');

    await setTheme(page, 'JupyterLab Dark');
    await page.screenshot({ path: picture('side-panel-dark.png') });
  });

  test('is empty after a restart of the kernel and fills again', async ({ page, tmpPath }) => {
    const panel = await openSidePanel(page);
    const path = await runNotebook(page, `${tmpPath}/restart.ipynb`, [experimentCode('phoenix')]);
    await expect(panel).toContainText('phoenix');
    const restarted = execute(page, 'notebook:restart-kernel');
    await page.getByRole('button', { name: 'Confirm Kernel Restart' }).click();
    await restarted;
    await expect(panel).toContainText('There is no experiment in this kernel yet.');
    await expect(panel.getByRole('option')).toHaveCount(0);
    // JupyterLab 4.6 may leave its connection in "restarting", with and without this extension.
    await execute(page, 'notebook:reconnect-to-kernel');
    await runAll(page, path);
    await expect(panel.getByRole('option')).toContainText('phoenix');
  });

  test('opens by itself only when the setting says so', async ({ page, tmpPath }) => {
    const panel = page.locator('#workbench-side-panel');
    await runNotebook(page, `${tmpPath}/one.ipynb`, [experimentCode('one')]);
    await expect(page.locator('.jp-OutputArea-output').first()).toBeVisible();
    await expect(panel).toBeHidden();
    await page.evaluate(async () => {
      const { settings } = window.jupyterapp.serviceManager;
      const id = 'torch-workbench:plugin';
      await settings.save(id, JSON.stringify({ openSidePanel: true }));
    });
    await reloadPage(page);
    await runNotebook(page, `${tmpPath}/two.ipynb`, [experimentCode('two')]);
    await expect(panel).toBeVisible();
  });
});
