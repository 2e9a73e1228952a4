import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import {
  execute,
  experimentCode,
  longExperimentCode,
  openSidePanel,
  PATIENT,
  picture,
  pictures,
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

  test('sends nothing to a kernel that has not imported Workbench', async ({ page, tmpPath }) => {
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

  test('filters its runs while they are read again, and leaves no key to the notebook', async ({
    page,
    tmpPath,
  }) => {
    const panel = await openSidePanel(page);
    await writeRuns(page, `${tmpPath}/runs`, 47);
    await runNotebook(page, `${tmpPath}/plain.ipynb`, ['1 + 1']);
    const rows = panel.locator('.wb-runs tbody tr');
    await expect(rows).toHaveCount(47);
    const filter = panel.getByRole('searchbox', { name: /Filter the runs/ });
    await filter.click();
    await page.keyboard.type('abdd xyz'); // each a shortcut of the notebook's
    await expect(panel).toContainText('No run matches “abdd xyz”.');
    await expect(page.locator('.jp-Notebook .jp-Cell')).toHaveCount(1);
    await page.keyboard.press('Escape');
    await expect(rows).toHaveCount(47);
    await expect(filter).toBeFocused();

    await page.keyboard.type('WideNet stopped');
    await expect(rows).toHaveCount(3);
    await expect(panel).toContainText('3 of 47');
    await writeRuns(page, `${tmpPath}/runs`, 48);
    await expect(panel).toContainText('4 of 48', PATIENT); // it was read again by itself
    await expect(filter).toBeFocused();
    await expect(filter).toHaveValue('WideNet stopped');
    await pictures(page, 'side-panel-filter');
  });

  test('deletes a run, and puts it back as it was', async ({ page, tmpPath }) => {
    const panel = await openSidePanel(page);
    await writeRuns(page, `${tmpPath}/runs`, 12);
    await runNotebook(page, `${tmpPath}/plain.ipynb`, ['1 + 1']);
    const run = `${tmpPath}/runs/exp-7`;
    const written = async () => {
      const found = await page.contents.getContentMetadata(`${run}/run.json`);
      return found && { content: found.content, last_modified: found.last_modified };
    };
    const before = await written();
    const row = (name: string) => panel.getByRole('row', { name: new RegExp(`^${name} `) });
    await row('exp-7').hover();
    await panel.getByRole('button', { name: 'Delete exp-7' }).click();
    await expect(row('exp-7')).toHaveCount(0);
    await expect(panel.locator('.wb-runs tbody tr')).toHaveCount(11);
    expect(await page.contents.directoryExists(run)).toBe(false);
    await expect(panel.locator('.wb-deleted')).toContainText('Deleted exp-7');
    await row('exp-8').hover();
    await pictures(page, 'side-panel-deleted');

    await reloadPage(page); // the server knows what can be undone
    await openSidePanel(page);
    await panel.getByRole('button', { name: 'Undo: put exp-7 back' }).click();
    await expect(row('exp-7')).toBeVisible();
    await expect(panel.getByRole('button', { name: /^Undo/ })).toBeHidden();
    expect(await written()).toEqual(before);
  });

  test('says why a run is not deleted', async ({ page, tmpPath }) => {
    const panel = await openSidePanel(page);
    await writeRuns(page, `${tmpPath}/runs`, 12);
    await runNotebook(page, `${tmpPath}/plain.ipynb`, ['1 + 1']);
    const training = panel.getByRole('button', { name: 'Delete exp-12' });
    await expect(training).toHaveAttribute('title', 'exp-12 is training: stop it first.');
    await training.click({ force: true }); // it looks disabled, and answers
    const alert = panel.locator('.wb-deleted').getByRole('alert');
    await expect(alert).toHaveText('exp-12 is training: stop it first.');
    expect(await page.contents.directoryExists(`${tmpPath}/runs/exp-12`)).toBe(true);

    await page.contents.deleteDirectory(`${tmpPath}/runs/exp-3`); // as in another window
    await panel.getByRole('button', { name: 'Delete exp-3' }).focus();
    await page.keyboard.press('Delete');
    await expect(alert).toContainText('exp-3 no longer exists');
    await expect(panel.locator('.wb-runs tbody tr')).toHaveCount(11);
    await expect(panel.getByRole('button', { name: 'Delete exp-2' })).toBeFocused();
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

/** Writes run directories, the last the newest, which trains on another machine. */
async function writeRuns(
  page: IJupyterLabPageFixture,
  folder: string,
  count: number,
): Promise<void> {
  for (let at = 1; at <= count; at += 1) {
    const path = `${folder}/exp-${at}`;
    if (await page.contents.directoryExists(path)) continue;
    const isWide = at % 15 === 0 || at === 48;
    const run = {
      name: `exp-${at}`,
      status: at === 12 ? 'training' : isWide ? 'stopped' : 'finished',
      model: isWide ? 'WideNet' : 'Net',
      modes: 'bf16',
      best_accuracy: 0.5 + at / 100,
      step: 100,
      updated_at: Date.now() / 1000 - 3_600 * (50 - at),
      process: { host: 'gpu1.invalid', pid: 1 },
    };
    await page.contents.createDirectory(path);
    await page.contents.uploadContent(JSON.stringify(run), 'text', `${path}/run.json`);
  }
}
