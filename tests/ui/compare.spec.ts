import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { PATIENT, execute, experimentCode, picture, runNotebook, setTheme } from './helpers';

// Galata's stand-in for the kernels' endpoint reads an answer to an interrupt, which has none.
test.use({ kernels: null });

const COMPARE = `compared = wb.compare(exp, ["fp32", "bf16", "attention:cudnn"], rounds=100_000)
compared.save("net.compare.safetensors")
compared`;

test('a comparison shows how far it is, and a button keeps what was measured', async ({
  page,
  tmpPath,
}) => {
  await runNotebook(page, `${tmpPath}/compare.ipynb`, [experimentCode('compared')]);
  await page.notebook.addCell('code', COMPARE);
  await page.notebook.selectCells(1);
  await page.keyboard.press('Control+Enter');
  const cell = page.locator('.jp-Notebook .jp-CodeCell').nth(1);
  const view = cell.locator('.wv-compare');

  await test.step('progress names the round and the variant', async () => {
    await expect(cell.getByRole('progressbar', { name: 'comparison' })).toBeVisible();
    const status = cell.getByRole('status').first();
    await expect(status).toContainText(/round \d+ of 100,?000: .*bf16/, PATIENT);
    // Of fewer than five rounds there is no verdict.
    await expect(status).toContainText(/round ([7-9]|\d{2,}) of 100,?000/, PATIENT);
    await page.screenshot({ path: picture('compare-under-way-light.png') });
    await setTheme(page, 'JupyterLab Dark');
    await page.screenshot({ path: picture('compare-under-way-dark.png') });
    await setTheme(page, 'JupyterLab Light');
  });

  await test.step('a button ends it with a table of what there is', async () => {
    await cell.getByRole('button', { name: 'Stop and keep what was measured' }).click();
    await expect(view).toContainText(/Cancelled after \d+ rounds? on cpu/, PATIENT);
    await expect(cell.getByRole('progressbar')).toHaveCount(0);
    const rows = view.locator('tbody tr');
    await expect(rows).toHaveCount(3);
    await expect(rows.nth(0)).toContainText('baseline');
    await expect(rows.nth(1)).toContainText(/slower|faster|tie|unclear/);
    await expect(rows.nth(2)).toContainText('attention cudnn does not exist on cpu');
  });

  await test.step('a row shows its rounds and losses beside the baseline', async () => {
    const rows = view.getByRole('grid', { name: 'Modes' }).locator('tbody tr');
    await rows.nth(0).click();
    await expect(view.getByRole('region', { name: 'fp32', exact: true })).toBeVisible();
    await page.keyboard.press('ArrowDown');
    await expect(rows.nth(1)).toHaveAttribute('aria-selected', 'true');
    const beside = view.getByRole('region', { name: 'bf16 against fp32' });
    await expect(beside.getByRole('img', { name: /^Step time by round: fp32 from/ })).toBeVisible();
    await expect(beside.getByRole('img', { name: /^Loss/ })).toBeVisible();
    await shoot(page, view, 'light');
    await setTheme(page, 'JupyterLab Dark');
    await expect(view).toHaveAttribute('data-wb-theme', 'dark');
    await shoot(page, view, 'dark');
    await setTheme(page, 'JupyterLab Light');
  });

  await test.step('a column sorts by keyboard', async () => {
    await view.getByRole('button', { name: 'Modes' }).focus();
    await page.keyboard.press('Enter');
    await expect(view.locator('tbody tr').nth(0)).toContainText('attention:cudnn');
  });

  await test.step('a saved comparison opens in a tab', async () => {
    await execute(page, 'docmanager:open', { path: `${tmpPath}/net.compare.safetensors` });
    const tab = page.locator('.jp-Workbench-document:visible .wv-compare');
    await expect(tab.getByRole('grid', { name: 'Modes' })).toContainText('bf16');
    await page.screenshot({ path: picture('compare-file.png') });
  });
});

async function shoot(page: IJupyterLabPageFixture, view: Locator, name: string): Promise<void> {
  await view.scrollIntoViewIfNeeded();
  await page.screenshot({ path: picture(`compare-${name}.png`) });
}
