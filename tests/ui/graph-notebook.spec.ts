import { expect, test } from '@jupyterlab/galata';
import { drawing } from './graph-view';
import { COMPILING, picture, PATIENT } from './helpers';
import { activeCell, codeOf, cursorLine, runWhole, scrolledTo } from './notebook';

test('the notebook about graphs is live from top to bottom', async ({ page, tmpPath }) => {
  const cells = codeOf('02_autograd_graphs.ipynb');
  await runWhole(page, `${tmpPath}/02_autograd_graphs.ipynb`, cells, COMPILING);

  const index = cells.findIndex((cell) => cell.endsWith('\nview'));
  const cell = await scrolledTo(page, index);
  const view = cell.locator('.wv-graph');
  await expect(view.getByRole('treeitem').filter({ hasText: 'body' })).toBeVisible(PATIENT);
  await drawing(view).click();
  await page.keyboard.press('/');
  await page.keyboard.type('dropout');
  await expect(view.locator('.wv-inspector h2')).toHaveText('dropout');
  await page.keyboard.press('Escape');
  await page.screenshot({ path: picture('graph-notebook.png') });
  await view.getByRole('button', { name: 'cell 1, line 35' }).click();
  await expect(activeCell(page)).toContainText('return early + self.head(h.flatten(1))');
  expect(await cursorLine(page)).toBe(35);
});
