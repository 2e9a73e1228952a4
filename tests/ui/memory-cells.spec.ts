import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';

import { pictures, runNotebook, PATIENT } from './helpers';

/** A step that is recorded, the same predicted, and one that a simulated GPU refuses. */
const MODEL = `import torch, workbench as wb
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleList(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(12))
        self.head = nn.Linear(512, 3)

    def forward(self, x):
        for block in self.body:
            x = block(x)
        return self.head(x)

torch.manual_seed(0)
x, y = torch.randn(4096, 512), torch.randint(0, 3, (4096,))
exp = wb.Experiment(Net(), (x, y), batch_size=512, name="cells")`;
const RECORDED = 'wb.memory(exp)';
const PREDICTED = 'wb.memory(exp, card="RTX 4090", settings="expandable_segments:True")';
const REFUSED = `small = wb.Experiment(Net(), (x, y), batch_size=2048, optimizer="sgd", name="small")
small.card = "600 MiB"
try:
    small.run(epochs=1, wait=True)
except torch.OutOfMemoryError as error:
    print(error)
wb.memory(small.captures.get(small.failure.capture))`;

/** The memory view that the last of these cells shows. */
async function shown(
  page: IJupyterLabPageFixture,
  folder: string,
  ...cells: string[]
): Promise<Locator> {
  await page.sidebar.close('left');
  await runNotebook(page, `${folder}/cells.ipynb`, [MODEL, ...cells]);
  const view = page.locator('.jp-OutputArea .wv-memory');
  await expect(view.locator('canvas.wv-timeline')).toBeVisible(PATIENT);
  await view.scrollIntoViewIfNeeded();
  return view;
}

test('a recording in a cell answers "What if?", by module and by size', async ({
  page,
  tmpPath,
}) => {
  const view = await shown(page, tmpPath, RECORDED);
  const row = view.getByRole('region', { name: 'What if?' });
  await row.getByRole('button', { name: 'What if?' }).click();
  const said = row.locator('.wv-wi-said');
  await expect(said).toContainText(/peak .*fits/, PATIENT);
  const before = await said.textContent();
  const batch = row.getByRole('slider');
  await batch.focus();
  for (let press = 0; press < 4; press += 1) await page.keyboard.press('ArrowRight');
  await expect(batch).toHaveAttribute('aria-valuetext', '1,024 samples');
  await expect(row.getByRole('row', { name: /^Batch 1,024/ })).toBeVisible(PATIENT);
  await expect(said).not.toHaveText(before ?? '');
  await expect(row).toBeInViewport({ ratio: 0.5 });
  await pictures(page, 'memory-what-if-cell');
  await row.getByRole('button', { name: 'What if?' }).click();

  await view.getByRole('button', { name: /^Flame/ }).click();
  await expect(view.locator('.wv-flame')).toContainText('Allocated by', PATIENT);
  await view.locator('input[type=search]').fill('module:body.3 >0.9MiB');
  await expect(view.locator('.wv-flame .wv-said')).toContainText(/^[\d.]+ MiB in \d blocks?/);
  await pictures(page, 'memory-flame-cell');
  await view.locator('input[type=search]').fill('stack:forward');
  await view.getByRole('button', { name: /^Holders/ }).click();
  await expect(view.locator('.wv-holders tbody tr').first()).toContainText(/body\.\d/);
});

test('a prediction says that it is one, and why it may be off', async ({ page, tmpPath }) => {
  const view = await shown(page, tmpPath, PREDICTED);
  await expect(view.locator('.wv-peak')).toHaveText(/^Predicted peak .* reserved/);
  const details = view.getByRole('complementary', { name: 'Details' });
  const pill = view.getByRole('button', { name: 'predicted · RTX 4090' });
  await pill.click();
  await expect(details.getByRole('heading', { name: /^Prediction/ })).toBeVisible();
  await expect(details).toContainText('expandable_segments:True');
  await expect(details.locator('.wv-prediction li').first()).toBeVisible();
  await pictures(page, 'memory-predicted');
});

test('memory that ran out shows what was in the way and what helps', async ({ page, tmpPath }) => {
  const view = await shown(page, tmpPath, REFUSED);
  await expect(view.locator('.wv-peak')).toHaveText(/^Out of memory in .* requested/);
  const details = view.getByRole('complementary', { name: 'Details' });
  if (!(await details.isVisible())) await view.getByRole('button', { name: 'Details' }).click();
  await expect(details.getByRole('heading', { name: '✕ Out of memory' })).toBeVisible();
  await expect(details.getByRole('row', { name: /^Requested [\d.]+ MiB/ })).toBeVisible();
  await expect(details.getByRole('row', { name: /^Without the blocks/ })).toBeVisible();
  const best = details.locator('.wv-best');
  await expect(best).toContainText('cheapest that fits');
  await expect(best.locator('pre')).toContainText('exp.');
  await best.getByRole('button', { name: /^Copy the code of/ }).click();
  await expect(best).toContainText(/Copied|Not copied/);
  await pictures(page, 'memory-refused');

  await details.locator('.wv-obstacles button').first().click();
  await expect(details.getByRole('button', { name: '‹ Out of memory' })).toBeVisible();
  await details.getByRole('button', { name: '‹ Out of memory' }).click();
  await expect(details.getByRole('heading', { name: '✕ Out of memory' })).toBeVisible();
});

test('every control of a cell is reached by keyboard, and seen where it is', async ({
  page,
  tmpPath,
}) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  const view = await shown(page, tmpPath, PREDICTED);
  const row = view.getByRole('region', { name: 'What if?' });
  await row.getByRole('button', { name: 'What if?' }).click();
  await expect(row.locator('.wv-wi-said')).toContainText(/peak/, PATIENT);
  const moves = await row
    .locator('.wv-working')
    .evaluate((node) => getComputedStyle(node, '::after').animationName);
  expect(moves).toBe('none');

  await view.evaluate((node) => {
    const all = node.querySelectorAll<HTMLElement>('button, input, select, [tabindex="0"]');
    const seen = [...all].filter(
      (one) => one.offsetParent !== null && !(one as HTMLButtonElement).disabled,
    );
    seen.forEach((one, at) => (one.dataset['walk'] = String(at)));
    seen[0]?.focus();
  });
  // A ring is drawn for those who came by keyboard.
  await page.keyboard.press('Tab');
  await page.keyboard.press('Shift+Tab');
  const wanted = await view.locator('[data-walk]').count();
  const reached = new Set<string>();
  const unseen: string[] = [];
  for (let press = 0; press < wanted; press += 1) {
    const stop = await page.evaluate(() => {
      const one = document.activeElement as HTMLElement;
      const ring = (el: Element | null): boolean => {
        const style = el ? getComputedStyle(el) : null;
        return style !== null && (style.outlineStyle !== 'none' || style.boxShadow !== 'none');
      };
      return {
        walk: one.dataset['walk'],
        text: one.outerHTML.slice(0, 90),
        ring: ring(one) || ring(one.closest('.wv-find')),
      };
    });
    if (stop.walk === undefined) break;
    reached.add(stop.walk);
    if (!stop.ring) unseen.push(stop.text);
    await page.keyboard.press('Tab');
  }
  expect(unseen).toEqual([]);
  expect(reached.size).toBe(wanted);
});
