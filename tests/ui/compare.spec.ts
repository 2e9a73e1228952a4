import { expect, test } from '@jupyterlab/galata';
import { experimentCode, picture, runNotebook, setTheme } from './helpers';

// Galata's stand-in for the kernels' endpoint reads an answer to an interrupt, which has none.
test.use({ kernels: null });

const COMPARE = 'wb.compare(exp, ["fp32", "bf16", "attention:cudnn"], rounds=100_000)';

test('a comparison shows how far it is, and an interrupt keeps what was measured', async ({
  page,
  tmpPath,
}) => {
  test.setTimeout(180_000);
  await runNotebook(page, `${tmpPath}/compare.ipynb`, [experimentCode('compared')]);
  await page.notebook.addCell('code', COMPARE);
  await page.notebook.selectCells(1);
  await page.keyboard.press('Control+Enter');
  const cell = page.locator('.jp-Notebook .jp-CodeCell').nth(1);

  await test.step('progress names the round and the arm', async () => {
    await expect(cell.getByRole('progressbar', { name: 'comparison' })).toBeVisible();
    await expect(cell.getByRole('status')).toContainText(/round \d+ of 100,?000: bf16/, {
      timeout: 60_000,
    });
    await expect(cell).toContainText('Interrupt the kernel');
    await page.waitForTimeout(4_000); // some rounds
    await page.screenshot({ path: picture('compare-under-way-light.png') });
  });

  await test.step('an interrupt ends it with a table of what there is', async () => {
    await page.menu.clickMenuItem('Kernel>Interrupt Kernel');
    await expect(cell).toContainText(/Cancelled after \d+ rounds? on cpu/, { timeout: 60_000 });
    await expect(cell.getByRole('progressbar')).toHaveCount(0);
    const rows = cell.locator('table tbody tr');
    await expect(rows).toHaveCount(3);
    await expect(rows.nth(0)).toContainText('baseline');
    await expect(rows.nth(1)).toContainText(/slower|faster|tie/);
    await expect(cell).toContainText('attention:cudnn: attention cudnn does not exist on cpu');
    await page.screenshot({ path: picture('compare-light.png') });
    await setTheme(page, 'JupyterLab Dark');
    await page.screenshot({ path: picture('compare-dark.png') });
    await setTheme(page, 'JupyterLab Light');
  });
});
