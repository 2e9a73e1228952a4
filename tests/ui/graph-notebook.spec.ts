import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from '@jupyterlab/galata';
import { activeCell, cursorLine, drawing, errors, executed, scrolledTo } from './graph-view';
import { COMPILING, picture, runNotebook, PATIENT } from './helpers';

const stored = JSON.parse(
  readFileSync(path.resolve(__dirname, '../../notebooks/02_autograd_graphs.ipynb'), 'utf8'),
) as { cells: { cell_type: string; source: string | string[] }[] };

test('the notebook about graphs is live from top to bottom', async ({ page, tmpPath }) => {
  const cells = stored.cells
    .filter(({ cell_type: type }) => type === 'code')
    .map(({ source }) => [source].flat().join(''));
  await page.sidebar.close('left');
  await runNotebook(page, `${tmpPath}/02_autograd_graphs.ipynb`, cells);
  await expect.poll(() => executed(page), COMPILING).toBe(cells.length);
  expect(await errors(page)).toEqual([]);

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
