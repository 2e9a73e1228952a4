import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { execute, picture, setTheme, PATIENT } from './helpers';
import { putSnapshot } from './snapshot-files';

/** Opens the record of the snapshot in a tab; gives the view. */
async function opened(page: IJupyterLabPageFixture, folder: string): Promise<Locator> {
  const target = `${folder}/snapshot.memory.safetensors`;
  await putSnapshot(page, target, 'snapshot.memory.safetensors');
  await execute(page, 'docmanager:open', { path: target });
  const view = page.locator('.jp-Workbench-document .wv-memory');
  await expect(view.locator('canvas.wv-map')).toBeVisible(PATIENT);
  return view;
}

/** Colours in a rectangle of a canvas, to distinguish a drawing from nothing. */
async function colours(canvas: Locator): Promise<number> {
  return canvas.evaluate((node) => {
    const drawing = node as HTMLCanvasElement;
    const data = drawing.getContext('2d')?.getImageData(0, 0, drawing.width, drawing.height).data;
    return new Set(new Uint32Array(data?.buffer ?? new ArrayBuffer(0))).size;
  });
}

test.describe('The memory of a GPU', () => {
  test('is scrubbed, searched and read block by block', async ({ page, tmpPath }) => {
    const view = await opened(page, tmpPath);
    await expect(view.locator('.wv-split')).toContainText('exact');
    await expect.poll(() => colours(view.locator('canvas.wv-map')), PATIENT).toBeGreaterThan(5);
    await page.screenshot({ path: picture('memory-map-light.png') });

    const chart = view.locator('canvas.wv-timeline');
    await chart.click({ position: { x: 300, y: 90 } });
    const before = await view.locator('.wv-sum').textContent();
    await page.keyboard.press('Shift+ArrowRight');
    await expect(view.locator('.wv-sum')).not.toHaveText(before ?? '');
    await expect(view.locator('.wv-sum')).toContainText('exact');

    await page.keyboard.press('o');
    await view.locator('canvas.wv-map').focus();
    await page.keyboard.press('ArrowRight');
    const inspector = view.locator('.wv-inspector');
    await expect(inspector).toContainText(/Large pool › 20\.0 MiB segment › block \d of \d/);
    await expect(inspector).toContainText('train.py:');
    await expect(inspector).toContainText(/stay(s)? pinned/);
    await page.screenshot({ path: picture('memory-block-light.png') });

    const found = await view.locator('canvas.wv-lens').boundingBox();
    await page.mouse.click((found?.x ?? 0) + 650, (found?.y ?? 0) + 30);
    await expect(inspector.locator('h2')).toContainText('train.py:');

    await view.locator('input[type=search]').fill('train.py:4 >5.99mib');
    await view.getByRole('button', { name: 'Holders', exact: true }).click();
    await expect(view.locator('.wv-part').filter({ hasText: 'Who holds' })).toContainText(
      /^Who.* \d+ blocks?,/,
    );
    await page.keyboard.press('Escape');
  });

  test('is a table, too, and dark', async ({ page, tmpPath }) => {
    await setTheme(page, 'JupyterLab Dark');
    const view = await opened(page, tmpPath);
    await expect.poll(() => colours(view.locator('canvas.wv-map')), PATIENT).toBeGreaterThan(5);
    await page.screenshot({ path: picture('memory-map-dark.png') });
    await view.locator('canvas.wv-timeline').focus();
    await page.keyboard.press('t');
    const sizes = view.getByRole('table').filter({ hasText: 'Segment size' });
    await expect(sizes.getByRole('row', { name: /^20 MiB 13/ })).toBeVisible();
    await expect(sizes.getByRole('row', { name: /^All 13/ })).toBeVisible();
    await sizes.getByRole('button', { name: 'Free, pinned' }).click();
    await expect(sizes.getByRole('columnheader', { name: 'Free, pinned' })).toHaveAttribute(
      'aria-sort',
      'descending',
    );
    await page.screenshot({ path: picture('memory-table-dark.png') });
  });
});
