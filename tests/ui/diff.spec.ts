import { expect, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { execute, picture, runNotebook, setTheme, PATIENT } from './helpers';

/** A forward that runs its late branch for the first capture and leaves early for the second. */
const MODEL = `import torch, workbench as wb
from torch import nn

class Exits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.early = nn.Linear(32, 3)
        self.late = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x, leave):
        h = self.stem(x)
        if leave:
            return self.early(h) / self.temperature
        return self.early(h) + self.late(h)

torch.manual_seed(0)
model, x, y = Exits(), torch.randn(64, 16), torch.randint(0, 3, (64,))

def captured(leave):
    with wb.graph(model) as view:
        nn.functional.cross_entropy(model(x, leave), y).backward()
    return view`;

test.describe('The diff of two graphs', () => {
  test('is drawn in the output of a cell', async ({ page, tmpPath }) => {
    const cells = [MODEL, 'captured(False).diff(captured(True))'];
    await runNotebook(page, `${tmpPath}/diff.ipynb`, cells);
    const view = page.locator('.jp-OutputArea .wv-diff');
    await expect(view.locator('canvas.wv-surface')).toBeVisible(PATIENT);

    await test.step('with both captures and what became of the operations', async () => {
      await expect(view.locator('.wv-sides')).toContainText(/A.*nodes.*saved.*casts.*B/);
      await expect(chip(view, 'Removed')).toBeEnabled();
      await expect(chip(view, 'Added')).toBeEnabled();
      await page.screenshot({ path: picture('diff-cell.png') });
    });

    await test.step('by keyboard from change to change', async () => {
      await view.locator('canvas.wv-surface').focus();
      await page.keyboard.press('n');
      await expect(view.locator('.wv-sr')).toHaveText(/removed|added|changed/);
      const changes = view.getByRole('group', { name: 'Changes' });
      await expect(changes).toContainText(/^‹1 of \d+›$/);
      await page.keyboard.press('p');
      await expect(changes).not.toContainText(/^‹1 of/);
    });

    await test.step('a source line leads to its cell', async () => {
      await view.locator('canvas.wv-surface').focus();
      await page.keyboard.press('/');
      await page.keyboard.type('div added');
      await expect(view.getByRole('heading', { name: 'div' })).toBeVisible();
      await view
        .locator('.wv-sec .wv-link', { hasText: /line \d+/ })
        .first()
        .click();
      const active = page.locator('.jp-Notebook .jp-Cell.jp-mod-active');
      await expect(active).toContainText('self.temperature');
      await expect(active.locator('.cm-content')).toBeFocused();
    });
  });

  test('opens from a file, light and dark, and says when nothing changed', async ({
    page,
    tmpPath,
  }) => {
    await runNotebook(page, `${tmpPath}/save.ipynb`, [
      MODEL,
      'a, b = captured(False), captured(True)',
      'a.diff(b).save("exits.diff.safetensors"); a.diff(a).save("equal.diff.safetensors")',
    ]);
    await execute(page, 'kernelmenu:shutdown').catch(() => undefined);
    const view = await opened(page, `${tmpPath}/exits.diff.safetensors`);
    await page.screenshot({ path: picture('diff-file-light.png') });

    await test.step('lights what a chip names, and all again', async () => {
      await chip(view, 'Added').click();
      await expect(view.locator('.wv-lit')).toContainText('Only in B');
      await button(view, 'Show all again').click();
      await expect(view.locator('.wv-lit')).toBeHidden();
    });

    await test.step('folds what did not change', async () => {
      await button(view, 'Only changes').click();
      await expect(button(view, 'Only changes')).toHaveAttribute('aria-pressed', 'true');
      await button(view, 'All').click();
    });

    await test.step('as a table with both captures', async () => {
      await button(view, 'Table').click();
      const row = view.locator('.wv-table tr', { hasText: 'div' });
      await expect(row).toContainText('+ added');
      await button(view, 'Table').click();
    });

    await setTheme(page, 'JupyterLab Dark');
    await expect(view).toHaveAttribute('data-wb-theme', 'dark');
    await page.screenshot({ path: picture('diff-file-dark.png') });

    const equal = await opened(page, `${tmpPath}/equal.diff.safetensors`);
    await expect(equal.locator('.wv-equal')).toContainText('The two graphs are equal');
    await page.screenshot({ path: picture('diff-equal.png') });
  });
});

/** The view of a record file, in a tab of its own. */
async function opened(page: IJupyterLabPageFixture, path: string): Promise<Locator> {
  await execute(page, 'docmanager:open', { path });
  const view = page.locator('.jp-Workbench-document:visible .wv-diff');
  await expect(view.locator('canvas.wv-surface')).toBeVisible(PATIENT);
  return view;
}

function button(view: Locator, name: string): Locator {
  return view.getByRole('button', { name }).first();
}

function chip(view: Locator, name: string): Locator {
  return view.locator('.wv-chips button', { hasText: name });
}
