import { expect, test } from '@jupyterlab/galata';
import { COMPILED, breadcrumbs, captured, choose, drawing, find } from './graph-view';
import { backdrop, picture, setTheme } from './helpers';
import { activeCell, cursorLine } from './notebook';

test('a compiled model opens into what its backward runs, down to the line of the cell', async ({
  page,
  tmpPath,
}) => {
  const view = await captured(page, `${tmpPath}/compiled.ipynb`, COMPILED);
  const details = view.getByRole('complementary', { name: 'Details' });

  await test.step('it is one closed box that says how much is inside', async () => {
    await choose(view, 'compiled');
    await expect(details).toContainText('backward operations in compiled code');
    await expect(view.locator('.wv-foot')).toContainText(/^2 operations, 10 parameters,/);
  });

  await test.step('Enter opens it', async () => {
    await drawing(view).focus();
    await page.keyboard.press('Enter');
    await expect(details.getByRole('button', { name: 'Collapse' })).toBeVisible();
    await page.keyboard.press('f');
  });

  await test.step('a search finds an operation in its module', async () => {
    await find(view, 'tanh_backward');
    await expect(view.locator('.wv-inspector h2')).toHaveText('tanh_backward');
    expect(await breadcrumbs(view)).toMatch(/body › 1 › tanh_backward/);
    await expect(details).toContainText('32×64 float32');
    await expect(details).toContainText('none has bytes or a gradient of its own');
    await page.screenshot({ path: picture('graph-compiled-light.png') });
    await setTheme(page, 'JupyterLab Dark');
    await expect.poll(() => backdrop(drawing(view))).toBeLessThan(80);
    await page.screenshot({ path: picture('graph-compiled-dark.png') });
    await setTheme(page, 'JupyterLab Light');
  });

  await test.step('its line leads to the cell', async () => {
    await details.getByRole('button', { name: 'cell 1, line 15' }).click();
    await expect(activeCell(page)).toContainText('self.head(self.body(h))');
    expect(await cursorLine(page)).toBe(15);
  });
});
