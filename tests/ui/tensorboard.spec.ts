import { expect, test } from '@jupyterlab/galata';
import { picture, reloadPage, setTheme, writeEvents } from './helpers';

test.describe('TensorBoard in a tab', () => {
  test('draws a chart, reloads, stops and starts again', async ({ page, tmpPath }) => {
    await writeEvents(page, `${tmpPath}/runs/first`);
    await openTensorBoard(page, `${tmpPath}/runs`);

    const frame = page.frameLocator('.jp-Workbench-tensorboard iframe');
    // The line is drawn by TensorBoard itself from the event file.
    await expect(frame.locator('scalar-card').first()).toContainText('train/loss');
    await expect(frame.locator('line-chart canvas').first()).toBeVisible();
    await expect(frame.locator('line-chart .x-axis').first()).toContainText('150');
    await page.screenshot({ path: picture('tensorboard-light.png') });

    await page.getByRole('button', { name: 'Stop TensorBoard' }).click();
    const notice = page.locator('.jp-Workbench-tensorboard .jp-Workbench-notice');
    await expect(notice).toContainText('TensorBoard was stopped.');
    await notice.getByRole('button', { name: 'Start TensorBoard' }).click();
    await expect(frame.locator('scalar-card').first()).toContainText('train/loss');
  });

  test('comes back after the page was loaded again', async ({ page, tmpPath }) => {
    await writeEvents(page, `${tmpPath}/runs/first`);
    await openTensorBoard(page, `${tmpPath}/runs`);
    const frame = page.frameLocator('.jp-Workbench-tensorboard iframe');
    await expect(frame.locator('scalar-card').first()).toBeVisible();
    await reloadPage(page);
    await expect(frame.locator('scalar-card').first()).toContainText('train/loss');
  });

  test('follows the dark theme', async ({ page, tmpPath }) => {
    await setTheme(page, 'JupyterLab Dark');
    await writeEvents(page, `${tmpPath}/runs/first`);
    await openTensorBoard(page, `${tmpPath}/runs`);
    const frame = page.frameLocator('.jp-Workbench-tensorboard iframe');
    await expect(frame.locator('scalar-card').first()).toBeVisible();
    await expect(frame.locator('body.dark-mode')).toBeVisible();
    await page.screenshot({ path: picture('tensorboard-dark.png') });
  });

  test("says the server's sentence when the folder is not there", async ({ page, tmpPath }) => {
    await openTensorBoard(page, `${tmpPath}/nowhere`);
    const notice = page.getByRole('alert').filter({ hasText: 'nowhere' });
    await expect(notice).toBeVisible();
    await expect(notice.getByRole('button', { name: 'Try again' })).toBeVisible();
  });
});

async function openTensorBoard(
  page: import('@jupyterlab/galata').IJupyterLabPageFixture,
  logdir: string,
) {
  await page.evaluate(async (folder) => {
    await window.jupyterapp.commands.execute('workbench:open-tensorboard', {
      logdir: folder,
    });
  }, logdir);
}
