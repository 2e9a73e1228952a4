import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { breadcrumbs, drawing } from './graph-view';
import { execute, experimentKnown, picture, runNotebook, setTheme, PATIENT } from './helpers';

/** Every third step leaves before `late`; a step takes long enough to be watched. */
const CELL = `import time, torch, workbench as wb
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.late = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 3)
        self.calls = 0

    def forward(self, x):
        time.sleep(0.05)
        h = self.stem(x)
        self.calls += self.training
        return self.head(h if self.calls % 3 == 0 else h + self.late(h))

torch.manual_seed(0)
x, y = torch.randn(256, 16), torch.randint(0, 3, (256,))
exp = wb.Experiment(Net(), (x, y), batch_size=32, epochs=2000, name="watched")`;

/** A graph captured of a training that goes on. */
async function watched(page: IJupyterLabPageFixture, path: string): Promise<Locator> {
  await runNotebook(page, path, [CELL, 'exp.run()']);
  await experimentKnown(page);
  await page.sidebar.close('left');
  await execute(page, 'workbench:capture-graph');
  await expect(page.getByRole('tab', { name: /watched · .* graph/ })).toBeVisible(PATIENT);
  const view = page.locator('.jp-Workbench-document:visible');
  await expect(slider(view)).toBeVisible(PATIENT);
  return view;
}

function slider(view: Locator): Locator {
  return view.getByRole('slider', { name: /Gradient norms of \d+ modules/ });
}

function over(view: Locator): Locator {
  return view.locator('.wv-step');
}

async function newestStep(view: Locator): Promise<number> {
  return Number(await slider(view).getAttribute('aria-valuemax'));
}

async function idle(page: IJupyterLabPageFixture): Promise<void> {
  await execute(page, 'workbench:stop');
}

test.describe('Gradient flow below a graph', () => {
  test('grows while the experiment trains; a click colours the graph by its step', async ({
    page,
    tmpPath,
  }) => {
    const view = await watched(page, `${tmpPath}/flow.ipynb`);
    const first = await newestStep(view);
    await expect.poll(() => newestStep(view), PATIENT).toBeGreaterThan(first + 20);
    await expect(view.getByText('no gradient: did not run')).toBeVisible();
    await page.screenshot({ path: picture('flow-strip-light.png') });

    const before = await drawn(view);
    const strip = (await slider(view).boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
    // There may be nothing to click on there yet (the strip fills from the left), or it is the
    // captured step, which a click goes to instead of laying it over: then another place is tried.
    let share = 0.2;
    await expect(async () => {
      await slider(view).click({ position: { x: strip.width * share, y: 22 } });
      share = share < 0.3 ? share + 0.03 : 0.2;
      await expect(view.locator('.wv-legend')).toContainText(/Gradient norm at step \d/, {
        timeout: 5_000,
      });
    }).toPass(PATIENT);
    await expect(over(view)).toContainText('Gradient norm per module at step');
    await expect.poll(() => drawn(view)).not.toBe(before);
    const chosen = await slider(view).getAttribute('aria-valuenow');

    // What is sampled meanwhile moves neither the chosen step nor the drawing.
    const then = await newestStep(view);
    await expect.poll(() => newestStep(view), PATIENT).toBeGreaterThan(then);
    expect(await slider(view).getAttribute('aria-valuenow')).toBe(chosen);
    await page.screenshot({ path: picture('flow-step-light.png') });

    await page.keyboard.press('Escape');
    await expect(over(view)).toBeHidden();
    await expect(view.locator('.wv-legend')).not.toContainText('at step');
    await page.mouse.move(10, 10);
    await expect.poll(() => drawn(view)).toBe(before);
    await idle(page);
  });

  test('is used by keyboard alone, in the dark, and goes to a captured step', async ({
    page,
    tmpPath,
  }) => {
    await setTheme(page, 'JupyterLab Dark');
    const view = await watched(page, `${tmpPath}/keys.ipynb`);
    await expect.poll(() => newestStep(view), PATIENT).toBeGreaterThan(30);
    await idle(page);
    await drawing(view).focus();
    for (let tabs = 0; tabs < 40 && !(await isFocused(slider(view))); tabs += 1)
      await page.keyboard.press('Tab');
    await expect(slider(view)).toBeFocused();

    for (const key of ['End', 'ArrowLeft', 'ArrowLeft', 'ArrowDown'])
      await page.keyboard.press(key);
    await expect(over(view)).toBeVisible();
    await expect(slider(view)).toHaveAttribute('aria-valuetext', /, step \d+: /);
    await page.screenshot({ path: picture('flow-step-dark.png') });
    await page.keyboard.press('Escape');
    await expect(over(view)).toBeHidden();

    // The first step was captured by itself: passing over it colours, Enter opens it.
    const tab = page.locator('.jp-mod-current[role=tab]');
    const label = (await tab.first().textContent()) ?? '';
    await page.keyboard.press('Home');
    await expect(over(view)).toContainText('at step 1.');
    await expect(page.getByRole('tab', { name: label })).toBeVisible();
    await page.keyboard.press('Enter');
    await expect(page.getByRole('tab', { name: 'watched · step 1 · graph' })).toBeVisible(PATIENT);
    await expect(over(view)).toBeHidden();
    expect(await breadcrumbs(view)).toBe('Net');
    await page.screenshot({ path: picture('flow-gone-dark.png') });
  });

  test('stays closed when a person closed it', async ({ page, tmpPath }) => {
    const view = await watched(page, `${tmpPath}/closed.ipynb`);
    const tall = (await drawing(view).boundingBox())?.height ?? 0;
    await view.getByRole('button', { name: 'Gradient flow' }).click();
    await expect(slider(view)).toBeHidden();
    await expect
      .poll(async () => (await drawing(view).boundingBox())?.height ?? 0)
      .toBeGreaterThan(tall + 50);
    await execute(page, 'workbench:capture-graph');
    await expect(view.getByRole('button', { name: 'Gradient flow' })).toBeVisible(PATIENT);
    await expect(slider(view)).toBeHidden();
    await idle(page);
  });

  test('stands below a graph in a cell, too, as the training was then', async ({
    page,
    tmpPath,
  }) => {
    const train = 'exp.run(steps=60, wait=True)';
    await runNotebook(page, `${tmpPath}/cell.ipynb`, [CELL, train, 'wb.graph(exp)']);
    const output = page.locator('.jp-OutputArea-output').filter({ has: page.locator('.wv-graph') });
    const strip = slider(output);
    await expect(strip).toBeVisible(PATIENT);
    await output.scrollIntoViewIfNeeded();
    await strip.focus();
    await page.keyboard.press('Home');
    await expect(over(output)).toContainText('at step 1.');
    await output.screenshot({ path: picture('flow-cell.png') });
    await page.keyboard.press('Escape');
    await expect(over(output)).toBeHidden();
  });
});

/** What is drawn on the canvas alone: text over it is smoothed now so, now so. */
async function drawn(view: Locator): Promise<string> {
  return drawing(view).evaluate((node) => (node as HTMLCanvasElement).toDataURL());
}

async function isFocused(element: Locator): Promise<boolean> {
  return element.evaluate((node) => node === document.activeElement);
}
