import { expect, test, type Locator, type Page } from '@playwright/test';
import { experimentCode, PATIENT, picture } from './helpers';

/**
 * Jupyter Notebook 7 on the same server: the same extensions in an application with one document a
 * page, whose main area takes no second one.
 */
test.describe('Notebook 7', () => {
  let errors: string[];
  let folder: string;

  test.beforeEach(async ({ page }, { workerIndex }) => {
    errors = [];
    page.on('pageerror', (error) => {
      if (isOurs(error)) errors.push(String(error));
    });
    page.on('console', (message) => {
      if (/plugin .* failed to activate|Workbench/i.test(message.text())) {
        errors.push(message.text());
      }
    });
    folder = `notebook7-${workerIndex}-${Date.now()}`;
    await page.request.put(`/api/contents/${folder}`, { data: { type: 'directory' } });
  });

  test.afterEach(async ({ page }) => {
    for (const { id, path } of await sessions(page)) {
      if (path.startsWith(folder)) await page.request.delete(`/api/sessions/${id}`);
    }
  });

  test('opens captures below the notebook, without an error', async ({ page }) => {
    const panel = await runExperiment(page, `${folder}/seven.ipynb`, 'seven');
    expect(await notActivated(page)).toEqual([]);
    await panel.getByRole('button', { name: 'Step', exact: true }).click();
    // the first step is captured; a press before that would capture the next one
    await expect(panel).toContainText('at the peak', PATIENT);
    await expect(panel).toContainText('step 1: paused');
    await panel.getByRole('button', { name: 'Graph', exact: true }).click();
    const below = page.locator('#jp-down-stack');
    await expect(below.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible(
      PATIENT,
    );
    await expect(below.getByRole('tab', { selected: true })).toContainText('seven');
    await page.screenshot({ path: picture('notebook7-light.png') });

    await panel.getByRole('button', { name: 'Memory', exact: true }).click();
    await expect(below.getByRole('tab')).toHaveCount(2);
    await expect(below.getByRole('tab', { selected: true })).toContainText(/memory/i);
    await expect(
      below.locator('.jp-Workbench-document[data-kind="memory"] canvas:visible').first(),
    ).toBeVisible();
    await below.getByRole('button', { name: 'Export' }).click();
    await expect(page.getByRole('menuitem', { name: /safetensors/ })).toBeEnabled();
    await page.keyboard.press('Escape');

    await panel.getByRole('button', { name: 'Graph', exact: true }).click();
    await expect(below.getByRole('tab', { selected: true })).toContainText(/graph/i);
    await expect(below.getByRole('tab')).toHaveCount(2);
    await setTheme(page, 'JupyterLab Dark');
    await page.screenshot({ path: picture('notebook7-dark.png') });
    await setTheme(page, 'JupyterLab Light');
    expect(errors).toEqual([]);
  });

  test('has the side panel, which a second press of its command hides', async ({ page }) => {
    await runExperiment(page, `${folder}/side.ipynb`, 'side');
    const side = page.locator('#workbench-side-panel');
    await toggleSidePanel(page);
    await expect(side.getByRole('option')).toContainText('side', PATIENT);
    await page.screenshot({ path: picture('notebook7-side.png') });
    await toggleSidePanel(page);
    await expect(side).toBeHidden();
    expect(errors).toEqual([]);
  });
});

/**
 * Whether an error went through code of ours. Notebook 7.6 has some of its own while it starts, with
 * this extension and without: it reads settings before its plugin for shortcuts has any.
 */
function isOurs({ stack }: Error): boolean {
  return stack?.includes('torch-workbench') ?? false;
}

/** Parts of the extension that the page could not start. */
async function notActivated(page: Page): Promise<readonly string[]> {
  return page.evaluate(async () => {
    const app = window.jupyterapp;
    await app.started;
    const ours = app.listPlugins().filter((id) => id.startsWith('torch-workbench:'));
    return ours.length === 0 ? ['all'] : ours.filter((id) => !app.isPluginActivated(id));
  });
}

interface Session {
  readonly id: string;
  readonly path: string;
}

async function sessions(page: Page): Promise<readonly Session[]> {
  return (await (await page.request.get('/api/sessions')).json()) as Session[];
}

/** A notebook whose only cell makes and shows an experiment, run; the experiment's panel. */
async function runExperiment(page: Page, path: string, name: string): Promise<Locator> {
  const cell = {
    cell_type: 'code',
    id: 'cell-0',
    execution_count: null,
    metadata: {},
    outputs: [],
    source: experimentCode(name),
  };
  const metadata = { kernelspec: { name: 'python3', display_name: 'Python 3' } };
  const content = { cells: [cell], metadata, nbformat: 4, nbformat_minor: 5 };
  await page.request.put(`/api/contents/${path}`, {
    data: { type: 'notebook', format: 'json', content },
  });
  await page.goto(`/notebooks/${path}`);
  await page.waitForFunction(() => window.jupyterapp !== undefined);
  await page.evaluate(async () => {
    const { commands, shell, started } = window.jupyterapp;
    await started;
    // the notebook is laid out by a route, behind the start
    while (shell.currentWidget === null) await new Promise(requestAnimationFrame);
    const { sessionContext } = shell.currentWidget as unknown as {
      sessionContext: {
        ready: Promise<void>;
        session: { kernel: { info: Promise<unknown> } };
      };
    };
    await sessionContext.ready;
    await sessionContext.session.kernel.info;
    await commands.execute('notebook:run-all-cells');
  });
  const panel = page.getByRole('region', { name: new RegExp(`^Experiment ${name}:`) });
  await expect(panel.getByRole('button', { name: 'Train' })).toBeEnabled(PATIENT);
  return panel;
}

async function toggleSidePanel(page: Page): Promise<void> {
  await page.evaluate(() => window.jupyterapp.commands.execute('workbench:show-side-panel'));
}

async function setTheme(page: Page, theme: string): Promise<void> {
  await page.evaluate(async (wanted) => {
    await window.jupyterapp.commands.execute('apputils:change-theme', { theme: wanted });
  }, theme);
  await expect(page.locator('body')).toHaveAttribute('data-jp-theme-name', theme);
}
