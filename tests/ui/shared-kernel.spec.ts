import { expect, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import {
  execute,
  longExperimentCode,
  openSidePanel,
  panelOf,
  PATIENT,
  picture,
  press,
  reloadPage,
  runAll,
  runNotebook,
  setTheme,
  stepOf,
  notebookFile,
} from './helpers';

/**
 * JupyterLab lets the first connection to a kernel have comms, and no later one: a second notebook,
 * or one that is opened beside a console, has to do without them.
 */
test.describe('A kernel of two', () => {
  test('shows its experiments in the second notebook too, and when the first is closed', async ({
    page,
    tmpPath,
  }) => {
    const side = await openSidePanel(page);
    const first = await runNotebook(page, `${tmpPath}/first.ipynb`, [longExperimentCode('shared')]);
    await expect(side.getByRole('option')).toContainText('shared', PATIENT);
    const second = await openOnKernelOf(page, first, `${tmpPath}/second.ipynb`, ['exp']);
    await runAll(page, second);
    expect(await hasComms(page, second)).toBe(false);
    await expect(side.getByRole('option')).toContainText('shared');
    const panel = panelOf(page, 'shared');
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await page.screenshot({ path: picture('second-notebook-light.png') });

    await execute(page, 'docmanager:open', { path: first });
    await expect(panelOf(page, 'shared').getByRole('button', { name: 'Training' })).toBeVisible();
    await execute(page, 'docmanager:save');
    await execute(page, 'application:close');
    await expect(side.getByRole('option')).toContainText('shared');
    const before = await stepOf(panel);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
    await press(panel, 'Pause');
    await expect(panel.getByRole('button', { name: 'Resume' })).toBeEnabled();
    await press(panel, 'Stop');
  });

  test('is followed through a restart by both notebooks', async ({ page, tmpPath }) => {
    const side = await openSidePanel(page);
    const first = await runNotebook(page, `${tmpPath}/one.ipynb`, [longExperimentCode('before')]);
    await expect(side.getByRole('option')).toContainText('before', PATIENT);
    const cells = [longExperimentCode('after')];
    const second = await openOnKernelOf(page, first, `${tmpPath}/two.ipynb`, cells);
    await expect(side.getByRole('option')).toContainText('before');

    await execute(page, 'docmanager:open', { path: first });
    const restarted = execute(page, 'notebook:restart-kernel');
    await page.getByRole('button', { name: 'Confirm Kernel Restart' }).click();
    await restarted;
    await expect(side).toContainText('There is no experiment in this kernel yet.');
    await execute(page, 'docmanager:open', { path: second });
    await expect(side).toContainText('There is no experiment in this kernel yet.');
    // JupyterLab 4.6 may leave its connections in "restarting", with and without this extension.
    await execute(page, 'notebook:reconnect-to-kernel');
    await runAll(page, second);
    await expect(side.getByRole('option')).toContainText('after', PATIENT);
    await expect(panelOf(page, 'after').getByRole('button', { name: 'Train' })).toBeEnabled();
    await execute(page, 'docmanager:open', { path: first });
    await execute(page, 'notebook:reconnect-to-kernel');
    await expect(side.getByRole('option')).toContainText('after');
  });

  test('answers while a cell of the second notebook runs', async ({ page, tmpPath }) => {
    const first = await runNotebook(page, `${tmpPath}/a.ipynb`, [longExperimentCode('both')]);
    await expect(panelOf(page, 'both')).toBeVisible(PATIENT);
    const second = await openOnKernelOf(page, first, `${tmpPath}/b.ipynb`, [
      'exp',
      'exp.run(wait=True)',
    ]);
    const ran = runAll(page, second);
    const panel = panelOf(page, 'both');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await press(panel, 'Stop');
    await ran;
  });

  test('is shared with a console that a page brings back first', async ({ page, tmpPath }) => {
    const file = await runNotebook(page, `${tmpPath}/late.ipynb`, [longExperimentCode('late')]);
    await expect(panelOf(page, 'late')).toBeVisible(PATIENT);
    await execute(page, 'docmanager:save');
    await execute(page, 'notebook:create-console', { activate: true });
    await expect(page.locator('.jp-CodeConsole')).toBeVisible();
    await execute(page, 'docmanager:open', { path: file });
    const saved = page.waitForRequest(
      (request) =>
        request.method() === 'PUT' &&
        request.url().includes('/api/workspaces/') &&
        !(request.postData() ?? 'notebook:').includes('notebook:'),
      PATIENT,
    );
    await execute(page, 'application:close');
    await saved;
    await reloadPage(page);
    await page.waitForFunction(() => {
      const widgets = [...window.jupyterapp.shell.widgets('main')] as unknown as {
        sessionContext?: { session: { kernel: { handleComms: boolean } | null } | null };
      }[];
      return widgets.some((one) => one.sessionContext?.session?.kernel?.handleComms === true);
    });
    await execute(page, 'docmanager:open', { path: file });
    const side = await openSidePanel(page);
    await expect(side.getByRole('option')).toContainText('late', PATIENT);
    expect(await hasComms(page, file)).toBe(false);
    await press(panelOf(page, 'late'), 'Train');
    await expect.poll(() => stepOf(panelOf(page, 'late'))).toBeGreaterThan(20);
    await setTheme(page, 'JupyterLab Dark');
    await page.screenshot({ path: picture('second-notebook-dark.png') });
    await press(panelOf(page, 'late'), 'Stop');
  });
});

/** Opens a new notebook on the kernel that another one runs in; its cells are not run. */
async function openOnKernelOf(
  page: IJupyterLabPageFixture,
  other: string,
  path: string,
  sources: readonly string[],
): Promise<string> {
  await page.contents.uploadContent(notebookFile(sources), 'text', path);
  const id = await page.evaluate((wanted) => {
    const { sessions } = window.jupyterapp.serviceManager;
    return [...sessions.running()].find((one) => one.path === wanted)?.kernel?.id;
  }, other);
  await execute(page, 'docmanager:open', { path, factory: 'Notebook', kernel: { id } });
  return path;
}

/** Whether JupyterLab lets the connection of an open notebook have comms. */
async function hasComms(page: IJupyterLabPageFixture, path: string): Promise<boolean | undefined> {
  return page.evaluate((wanted) => {
    const panels = [...window.jupyterapp.shell.widgets('main')] as unknown as {
      context?: { path: string };
      sessionContext: { session: { kernel: { handleComms: boolean } | null } | null };
    }[];
    const panel = panels.find((one) => one.context?.path === wanted);
    return panel?.sessionContext.session?.kernel?.handleComms;
  }, path);
}
