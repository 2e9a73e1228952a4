import { expect, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { execute, pictures, runNotebook, PATIENT } from './helpers';

/** Every step keeps another mebibyte of this process: a leak to be seen while it trains. */
const LEAKS = `import time, torch, workbench as wb
from torch import nn

class Leaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)
        self.kept = []

    def forward(self, x):
        time.sleep(0.02)
        self.kept.append(torch.ones(2**18))
        return self.head(x)

torch.manual_seed(0)
x, y = torch.randn(256, 16), torch.randint(0, 3, (256,))
exp = wb.Experiment(Leaks(), (x, y), batch_size=32, epochs=2000, name="leaks")
exp.run()
exp`;

/** The first figure of the strip's text alternative, in MiB. */
async function resident(strip: Locator): Promise<number> {
  const label = (await strip.getAttribute('aria-label')) ?? '';
  const [, amount, unit] = /resident ([\d.,]+) (MiB|GiB)/.exec(label) ?? [];
  return Number(amount?.replace(',', '')) * (unit === 'GiB' ? 1024 : 1);
}

test.describe('Memory while it trains', () => {
  test('shows a leak as it grows', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/leaks.ipynb`, [LEAKS]);
    const strip = page.getByRole('figure', { name: /^Memory after step/ });
    await expect(strip).toBeVisible(PATIENT);
    await expect(strip).toHaveAttribute('aria-label', /, this process: resident .*; peak /);
    const before = await resident(strip);
    await expect.poll(() => resident(strip), PATIENT).toBeGreaterThan(before + 40);
    await strip.scrollIntoViewIfNeeded();
    await pictures(page, 'memory-live');

    await execute(page, 'workbench:stop');
    await expect(page.getByRole('button', { name: 'Train' }).first()).toBeVisible(PATIENT);
    await strip.focus();
    await page.keyboard.press('Home');
    await expect(strip.locator('.wb-reading')).toHaveText('step 1');
    await page.keyboard.press('Escape');
    await expect(strip.locator('.wb-reading')).toHaveText('this process');
    await strip.getByRole('button', { name: 'Memory by step: show as a table' }).click();
    await expect(strip.getByRole('columnheader')).toHaveText(['step', 'resident']);
  });
});
