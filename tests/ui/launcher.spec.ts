import { expect, test } from '@jupyterlab/galata';
import { picture } from './helpers';

test.describe('Launcher', () => {
  test('lists every plugin as active', async ({ page }) => {
    const states = await page.evaluate(() => {
      const app = window.jupyterapp;
      return app
        .listPlugins()
        .filter((id) => id.startsWith('torch-workbench:'))
        .map((id) => [id, app.isPluginActivated(id)]);
    });
    expect(Object.fromEntries(states)).toEqual({
      'torch-workbench:plugin': true,
      'torch-workbench:connection': true,
      'torch-workbench:keys': true,
      'torch-workbench:sidebar': true,
      'torch-workbench:documents': true,
      'torch-workbench:captures': true,
      'torch-workbench:files': true,
      'torch-workbench:memory-diff': true,
      'torch-workbench:save': true,
      'torch-workbench:tensorboard': true,
      'torch-workbench:launcher': true,
      'torch-workbench:statusbar': true,
      'torch-workbench:commands': true,
      'torch-workbench:open': true,
      'torch-workbench:output': true,
    });
  });

  test('creates a notebook that is ready to run', async ({ page, tmpPath }) => {
    await page.evaluate(async (cwd) => {
      await window.jupyterapp.commands.execute('filebrowser:go-to-path', {
        path: cwd,
      });
    }, tmpPath);
    const card = page.getByRole('button', { name: 'Workbench classifier' }).last();
    await expect(card).toBeVisible();
    await page.screenshot({ path: picture('launcher-light.png') });
    await card.click();

    await expect(page.getByRole('tab', { name: 'classifier.ipynb' })).toBeVisible();
    expect(await page.contents.fileExists(`${tmpPath}/classifier.ipynb`)).toBe(true);
    // A kernel is there without a dialog, and the code names the package's own entry point.
    await expect(page.locator('.jp-Dialog')).toHaveCount(0);
    await expect(page.locator('.jp-Toolbar-kernelName')).toContainText('Python 3');
    await expect(page.locator('.jp-Notebook')).toContainText('wb.Experiment(');

    // A second one does not overwrite the first.
    await page.evaluate(async (cwd) => {
      await window.jupyterapp.commands.execute('workbench:create-classifier', {
        cwd,
      });
    }, tmpPath);
    await expect(page.getByRole('tab', { name: 'classifier-2.ipynb' })).toBeVisible();
  });
});
