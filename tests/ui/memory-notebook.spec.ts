import { copyFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from '@jupyterlab/galata';
import { activeCell, cursorLine, errors, executed, scrolledTo } from './graph-view';
import { picture, runNotebook, setTheme, PATIENT } from './helpers';

const stored = JSON.parse(
  readFileSync(path.resolve(__dirname, '../../notebooks/03_memory.ipynb'), 'utf8'),
) as { cells: { cell_type: string; source: string | string[] }[] };

const cells = stored.cells
  .filter(({ cell_type: type }) => type === 'code')
  .map(({ source }) => [source].flat().join(''));

function indexOf(lastLine: string): number {
  const found = cells.findIndex((cell) => cell.endsWith(`\n${lastLine}`));
  if (found < 0) throw new Error(`no cell of the notebook ends in ${lastLine}`);
  return found;
}

test('the notebook about memory is live from top to bottom', async ({ page, tmpPath }) => {
  await page.sidebar.close('left');
  await runNotebook(page, `${tmpPath}/03_memory.ipynb`, cells);
  await expect.poll(() => executed(page), { timeout: 800_000 }).toBe(cells.length);
  expect(await errors(page)).toEqual([]);

  const view = (await scrolledTo(page, indexOf('textbook'))).locator('.wv-memory');
  await view.locator('input[type=search]').fill('softmax');
  await view.getByRole('button', { name: 'Holders', exact: true }).click();
  await expect(view).toContainText('_softmax');
  await page.screenshot({ path: picture('memory-notebook.png') });

  for (const theme of ['Dark', 'Light']) {
    await setTheme(page, `JupyterLab ${theme}`);
    const predicted = (await scrolledTo(page, indexOf('predicted'))).locator('.wv-memory');
    await expect(predicted.locator('canvas.wv-map')).toBeVisible(PATIENT);
    await expect(predicted.locator('.wv-pill.wv-warn')).toContainText('predicted');
    await page.screenshot({ path: picture(`memory-notebook-predicted-${theme}.png`) });

    const failed = (await scrolledTo(page, indexOf('failed'))).locator('.wv-memory');
    await expect(failed.locator('canvas.wv-map')).toBeVisible(PATIENT);
    await expect(failed).toContainText('Out of memory');
    await page.screenshot({ path: picture(`memory-notebook-refused-${theme}.png`) });
    const image = picture(`memory-${theme}.png`);
    await failed.screenshot({ path: image });
    // docs/memory.md shows it; the picture changes only where that is asked for.
    if (theme === 'Light' && process.env.WORKBENCH_UPDATE_IMAGES !== undefined)
      copyFileSync(image, path.resolve(__dirname, '../../docs/images/memory.png'));
  }

  // From a block that stood in the way to the line that asked for it.
  const refused = (await scrolledTo(page, indexOf('failed'))).locator('.wv-memory');
  await refused.locator('.wv-inspector').getByRole('button', { name: 'aten.add' }).first().click();
  await refused.getByRole('button', { name: 'cell 1, line 30' }).first().click();
  await expect(activeCell(page)).toContainText('x = x + self.out(self.mix(q, k, v)');
  expect(await cursorLine(page)).toBe(30);
});
