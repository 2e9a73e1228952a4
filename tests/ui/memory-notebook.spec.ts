import { copyFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from '@jupyterlab/galata';
import { picture, setTheme, PATIENT } from './helpers';
import {
  activeCell,
  codeOf,
  cursorLine,
  drawings,
  printed,
  runWhole,
  scrolledTo,
} from './notebook';

const cells = codeOf('03_memory.ipynb');

const answers = [
  '48.0 MiB  weights = self.dropout(scores.softmax(-1))', // the line that leads the peak
  "B's peak is 50.8 MiB lower", // a fused attention
  "B's peak is 376 MiB lower", // a leak stopped
  'memory/resident',
  'default: peak reserved memory 730 MiB', // shortest batches first
  'default: peak reserved memory 602 MiB', // longest first
  'Out of memory: 4.0 MiB requested in blocks.3 (forward), step 1, on a 640 MiB GPU',
  'Free on the GPU   18.0 MiB',
  'what helps, as tried:',
  'Experiment small: finished',
  'predicted peak 3.6 GiB', // on a T4
  'it asks for the Python object builtins.print',
  '1 of 2 addresses; event 2: 8,388,608 B at 0x7f0000400000, not at 0x7f0000600000',
];

function indexOf(lastLine: string): number {
  const found = cells.findIndex((cell) => cell.endsWith(`\n${lastLine}`));
  if (found < 0) throw new Error(`no cell of the notebook ends in ${lastLine}`);
  return found;
}

test('the notebook about memory is live from top to bottom', async ({ page, tmpPath }) => {
  await runWhole(page, `${tmpPath}/03_memory.ipynb`, cells, { timeout: 800_000 });
  const said = await printed(page);
  for (const answer of answers) expect(said).toContain(answer);
  expect(said).not.toContain('this ran on your machine');
  expect(await drawings(page)).toBe(7);

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
    // docs/memory.md shows it; the picture changes only where that is requested.
    if (theme === 'Light' && process.env.WORKBENCH_UPDATE_IMAGES !== undefined)
      copyFileSync(image, path.resolve(__dirname, '../../docs/images/memory.png'));
  }

  // From a block that was in the way to the line that allocated it.
  const refused = (await scrolledTo(page, indexOf('failed'))).locator('.wv-memory');
  await refused.locator('.wv-inspector').getByRole('button', { name: 'aten.add' }).first().click();
  await refused.getByRole('button', { name: 'cell 1, line 30' }).first().click();
  await expect(activeCell(page)).toContainText('x = x + self.out(self.mix(q, k, v)');
  expect(await cursorLine(page)).toBe(30);
});
