import { expect, test } from '@jupyterlab/galata';
import {
  announced,
  breadcrumbs,
  button,
  captured,
  choose,
  drawing,
  fact,
  find,
  isFocused,
  pixels,
  spotOf,
} from './graph-view';
import { backdrop, picture, setTheme } from './helpers';
import { activeCell, cursorLine } from './notebook';

test.describe('The graph of a step', () => {
  test('answers a mouse', async ({ page, tmpPath }) => {
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
      await expect(answer).toContainText('Releasing what this operation holds would free nothing');
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
      await page.getByRole('tab', { name: /asked · .* graph/ }).click();
      await find(view, 'stem.0 linear');
      const source = details.locator('.wv-sec', { hasText: 'Source' }).first();
      await expect(source).toContainText('h = self.stem(x)');
      await source.getByRole('button', { name: 'cell 1, line 13' }).click();
      await expect(activeCell(page).locator('.cm-content')).toBeFocused();
      expect(await cursorLine(page)).toBe(13);
    });
  });

  test('needs no mouse', async ({ page, tmpPath }) => {
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
      const stem = grid.getByRole('row').filter({ has: page.locator('td[title="stem"]') });
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
