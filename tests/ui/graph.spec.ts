import { expect, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { backdrop, execute, experimentKnown, picture, runNotebook, setTheme } from './helpers';

/** What a shared machine with two cores may need for what takes a second on a free one. */
const PATIENT = { timeout: 60_000 };

/** `side` is trained by nothing: its output is detached, in line 14 of this cell. */
const CELL = `import torch, workbench as wb
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.side = nn.Linear(32, 3)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Tanh())
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        h = self.stem(x)
        aside = self.side(h).detach()
        return self.head(self.body(h)) + aside

torch.manual_seed(0)
x, y = torch.randn(64, 16), torch.randint(0, 3, (64,))
exp = wb.Experiment(Net(), (x, y), batch_size=32, name="asked")`;

test.use({ actionTimeout: 20_000 });

test.describe('The graph of a step', () => {
  test('answers a mouse', async ({ page, tmpPath }) => {
    test.setTimeout(300_000);
    const view = await captured(page, `${tmpPath}/mouse.ipynb`);
    const canvas = drawing(view);
    const details = view.getByRole('complementary', { name: 'Details' });

    await test.step('a double click closes a module and opens it again', async () => {
      await choose(view, 'stem');
      await button(details, 'Collapse').click();
      await expect(button(details, 'Open')).toBeVisible();
      const spot = await spotOf(view, 'stem');
      await canvas.dblclick({ position: spot });
      await expect(button(details, 'Collapse')).toBeVisible();
      await expect(announced(view)).toHaveText(/^stem opened$/);
      const inside = await spotOf(view, 'stem');
      await canvas.dblclick({ position: inside });
      await expect(announced(view)).toHaveText(/^stem closed$/);
      await button(details, 'Open').click();
    });

    await test.step('a search finds operations and goes from one to the next', async () => {
      const field = view.getByRole('searchbox', {
        name: 'Find operation or module',
      });
      await field.fill('relu');
      const found = view.locator('.wv-find output');
      await expect(found).toHaveText(/^1 of \d$/);
      const first = await breadcrumbs(view);
      expect(first).toMatch(/stem/);
      await field.press('Enter');
      await expect(found).toHaveText(/^2 of \d$/);
      expect(await breadcrumbs(view)).not.toBe(first);
      await field.fill('nothing is called this');
      await expect(found).toHaveText('none');
      await field.press('Escape');
      await expect(field).toHaveValue('');
    });

    await test.step('colour by gradient paints the drawing anew, with its scale', async () => {
      const before = await pixels(canvas);
      await button(view, 'Gradient norm').click();
      await expect(button(view, 'Gradient norm')).toHaveAttribute('aria-pressed', 'true');
      await expect(view.locator('.wv-legend')).toContainText('Norm of the gradient of the output');
      await expect.poll(async () => (await pixels(canvas)).equals(before)).toBe(false);
      await choose(view, 'body');
      await expect(fact(details, 'Gradient norm')).toHaveText(/^[\d.]+(e−\d+)?, its parameters$/);
      await page.screenshot({ path: picture('graph-gradient-light.png') });
      await button(view, 'Bytes').click();
      await expect
        .poll(async () => button(view, 'Bytes').getAttribute('aria-pressed'))
        .toBe('true');
    });

    await test.step('the path to the parameters is lit, and named', async () => {
      await choose(view, 'body');
      const before = await pixels(canvas);
      await details.getByRole('button', { name: 'Path to parameters' }).click();
      const answer = details.locator('.wv-questions');
      // Six parameters: two of body, and the four of stem that body's input was computed from.
      await expect(answer).toContainText(/Feeds 6 parameters through \d+ operations\./);
      await expect(answer.getByRole('listitem')).toHaveText([
        'stem.0.weight',
        'stem.0.bias',
        'stem.2.weight',
        'stem.2.bias',
        'body.0.weight',
        'body.0.bias',
      ]);
      await expect.poll(async () => (await pixels(canvas)).equals(before)).toBe(false);
      await page.screenshot({ path: picture('graph-path-light.png') });
      await view.locator('.wv-lit').getByRole('button', { name: 'Show all again' }).click();
      await expect(view.locator('.wv-lit')).toBeHidden();
    });

    await test.step('what holds these bytes leads to the other holder', async () => {
      // What ReLU keeps is its output, which the Linear after it keeps as its input.
      await find(view, 'stem.1 relu');
      await details.getByRole('button', { name: 'What holds these bytes?' }).click();
      const answer = details.locator('.wv-questions');
      await expect(answer).toContainText('Nothing would be freed if this operation alone let go');
      const other = answer.getByRole('row').filter({ hasText: 'stem.2' });
      await expect(other).toHaveCount(1);
      await page.screenshot({ path: picture('graph-holders-light.png') });
      await other.getByRole('button', { name: 'linear' }).click();
      await expect(details.getByRole('heading', { level: 2 })).toHaveText('linear');
      expect(await breadcrumbs(view)).toMatch(/stem › 2$/);
    });

    await test.step('it looks as it should in the dark', async () => {
      await button(view, 'Gradient norm').click();
      const light = await backdrop(canvas);
      await setTheme(page, 'JupyterLab Dark');
      await expect.poll(() => backdrop(canvas)).toBeLessThan(60);
      expect(light).toBeGreaterThan(200);
      await page.screenshot({ path: picture('graph-gradient-dark.png') });
      await setTheme(page, 'JupyterLab Light');
      await expect.poll(() => backdrop(canvas)).toBeGreaterThan(200);
    });
  });

  test('says why a parameter gets no gradient, and leads to the line', async ({
    page,
    tmpPath,
  }) => {
    test.setTimeout(300_000);
    const view = await captured(page, `${tmpPath}/why.ipynb`);
    const details = view.getByRole('complementary', { name: 'Details' });

    await test.step('the cut is named with its line, in both themes', async () => {
      await view.getByRole('treeitem').first().click();
      const why = details.locator('.wv-sec', { hasText: 'Why no gradient?' });
      await expect(why).toContainText('2 parameters');
      await expect(why.locator('summary')).toHaveText(['Cut by detach (2)']);
      await expect(why.getByRole('listitem')).toContainText(['side.weight', 'side.bias']);
      await page.screenshot({ path: picture('graph-why-light.png') });
      await setTheme(page, 'JupyterLab Dark');
      await expect.poll(() => backdrop(drawing(view))).toBeLessThan(60);
      await page.screenshot({ path: picture('graph-why-dark.png') });
      await setTheme(page, 'JupyterLab Light');
      await find(view, 'side.bias');
      await expect(why.locator('[data-found="true"], [data-found=""]')).toContainText('side.bias');
    });

    await test.step('its line is a link to the cell', async () => {
      const why = details.locator('.wv-sec', { hasText: 'Why no gradient?' });
      await why.getByRole('button', { name: 'cell 1, line 14' }).first().click();
      await expect(activeCell(page)).toContainText('aside = self.side(h).detach()');
      expect(await cursorLine(page)).toBe(14);
    });

    await test.step('so is the line of an operation', async () => {
      await page.getByRole('tab', { name: /Graph of asked, step/ }).click();
      await find(view, 'stem.0 linear');
      const source = details.locator('.wv-sec', { hasText: 'Source' }).first();
      await expect(source).toContainText('h = self.stem(x)');
      await source.getByRole('button', { name: 'cell 1, line 13' }).click();
      await expect(activeCell(page).locator('.cm-content')).toBeFocused();
      expect(await cursorLine(page)).toBe(13);
    });
  });

  test('needs no mouse', async ({ page, tmpPath }) => {
    test.setTimeout(300_000);
    const view = await captured(page, `${tmpPath}/keys.ipynb`);
    const canvas = drawing(view);
    const heading = view.locator('.wv-inspector h2');
    const keys = page.keyboard;
    // The tab has the focus when it is opened; the drawing is some controls ahead.
    const within = () => view.evaluate((node) => node.contains(document.activeElement));
    await expect.poll(within).toBe(true);
    for (let tabs = 0; tabs < 40 && !(await isFocused(canvas)); tabs += 1) await keys.press('Tab');
    await expect(canvas).toBeFocused();

    await test.step('/ searches, Escape comes back to the drawing', async () => {
      await keys.press('/');
      await expect(view.getByRole('searchbox')).toBeFocused();
      await keys.type('tanh');
      await expect(view.locator('.wv-find output')).toHaveText(/^1 of \d$/);
      await keys.press('Escape');
      await expect(canvas).toBeFocused();
      await expect(heading).toHaveText('tanh');
    });

    await test.step('arrows walk along the data, both ways', async () => {
      await keys.press('ArrowUp');
      await expect(heading).toHaveText('linear');
      expect(await breadcrumbs(view)).toMatch(/body › 0$/);
      await keys.press('ArrowDown');
      await expect(heading).toHaveText('tanh');
      expect(await breadcrumbs(view)).toMatch(/body › 1$/);
    });

    await test.step('Escape goes out to the module, Enter closes and opens it', async () => {
      await keys.press('Escape');
      await expect(heading).toHaveText('body');
      await keys.press('Enter');
      await expect(announced(view)).toHaveText('body closed');
      await keys.press('Enter');
      await expect(announced(view)).toHaveText('body opened');
    });

    await test.step('P and H ask, and no key reaches the notebook', async () => {
      await keys.press('p');
      await expect(announced(view)).toContainText('parameters');
      await expect(view.locator('.wv-questions')).toContainText('Feeds 6 parameters');
      await keys.press('h');
      await expect(view.locator('.wv-questions')).toContainText(/held|Nothing is held/);
      await keys.press('Escape');
      await expect(view.locator('.wv-lit')).toBeHidden();
      await expect(page.getByRole('dialog')).toHaveCount(0);
    });

    await test.step('+, − and F change the zoom', async () => {
      const zoom = view.getByRole('group', { name: 'Zoom' }).locator('span');
      const before = await zoom.textContent();
      await keys.press('+');
      await expect(zoom).not.toHaveText(before ?? '');
      const closer = await zoom.textContent();
      await keys.press('-');
      await expect(zoom).not.toHaveText(closer ?? '');
      await keys.press('f');
    });

    await test.step('T gives the same numbers as a table', async () => {
      await keys.press('t');
      const grid = view.getByRole('treegrid', { name: 'Operations by module' });
      await expect(grid).toBeVisible();
      const stem = grid.getByRole('row').filter({ hasText: /^[▾▸] stem/ });
      await expect(grid.getByRole('row').nth(1)).toBeFocused();
      await expect(stem).toHaveAttribute('aria-expanded', 'true');
      const rows = await grid.getByRole('row').count();
      while (!(await isFocused(stem))) await keys.press('ArrowDown');
      await keys.press('Enter');
      await expect(stem).toHaveAttribute('aria-expanded', 'false');
      // Four modules of one operation each were inside.
      await expect(grid.getByRole('row')).toHaveCount(rows - 4);
      await page.screenshot({ path: picture('graph-table-light.png') });
    });
  });
});

/** Runs the cell, captures a step, and gives the view in its tab. */
async function captured(page: IJupyterLabPageFixture, path: string): Promise<Locator> {
  await runNotebook(page, path, [CELL]);
  await experimentKnown(page);
  await page.sidebar.close('left');
  await execute(page, 'workbench:capture-graph');
  await expect(page.getByRole('tab', { name: /Graph of asked, step/ })).toBeVisible(PATIENT);
  const view = page.locator('.jp-Workbench-document:visible');
  await expect(view.getByRole('treeitem').filter({ hasText: 'head' })).toBeVisible(PATIENT);
  return view;
}

function drawing(view: Locator): Locator {
  return view.locator('canvas[role=application]');
}

function button(within: Locator, name: string): Locator {
  return within.getByRole('button', { name }).first();
}

/** What a screen reader was told last. */
function announced(view: Locator): Locator {
  return view.locator('.wv-sr[role=status]');
}

async function breadcrumbs(view: Locator): Promise<string> {
  return (await view.getByRole('navigation', { name: 'Selected module' }).textContent()) ?? '';
}

function fact(details: Locator, label: string): Locator {
  return details
    .locator('dt', { hasText: label })
    .first()
    .locator('xpath=following-sibling::dd[1]');
}

/** Selects a module in the list on the left. */
async function choose(view: Locator, module: string): Promise<void> {
  const row = view
    .getByRole('treeitem')
    .filter({ has: view.page().getByText(module, { exact: true }) });
  await row.first().click();
  await expect(view.locator('.wv-inspector h2')).toHaveText(module);
}

/** Selects the first match of a search, and leaves the field empty. */
async function find(view: Locator, query: string): Promise<void> {
  const field = view.getByRole('searchbox');
  await field.fill(query);
  await expect(view.locator('.wv-find output')).toHaveText(/^1 of \d+$/);
}

async function isFocused(element: Locator): Promise<boolean> {
  return element.evaluate((node) => node === document.activeElement);
}

/** A point of the drawing at which a click selects `title`: the pointer is led over it for that. */
async function spotOf(view: Locator, title: string): Promise<{ x: number; y: number }> {
  const canvas = drawing(view);
  const { mouse } = view.page();
  await button(view, 'Fit').click();
  const area = (await canvas.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
  const isBox = () => canvas.evaluate((node) => node.classList.contains('pointing'));
  for (let y = 16; y < area.height; y += 20)
    for (let x = 20; x < area.width / 2; x += 20) {
      await mouse.move(area.x + x, area.y + y);
      if (!(await isBox())) continue;
      // Past the mark at the left of a box, which opens it at the first click.
      const position = { x: x + 48, y };
      await canvas.click({ position });
      if ((await view.locator('.wv-inspector h2').textContent()) === title) return position;
      break;
    }
  throw new Error(`no click on the drawing selects ${title}`);
}

/** Bytes of what a canvas shows. */
async function pixels(canvas: Locator): Promise<Buffer> {
  return canvas.screenshot();
}

function activeCell(page: IJupyterLabPageFixture): Locator {
  return page.locator('.jp-Notebook .jp-Cell.jp-mod-active');
}

/** The line, from 1, at which the cursor of the notebook in front stands. */
async function cursorLine(page: IJupyterLabPageFixture): Promise<number> {
  return page.evaluate(() => {
    const panel = window.jupyterapp.shell.currentWidget as unknown as {
      content: { activeCell: { editor: { getCursorPosition(): { line: number } } } };
    };
    return panel.content.activeCell.editor.getCursorPosition().line + 1;
  });
}
