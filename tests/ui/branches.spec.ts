import { expect, test } from '@jupyterlab/galata';
import { captured, drawing, fact, find, pixels } from './graph-view';
import { backdrop, picture, setTheme } from './helpers';
import { activeCell, cursorLine } from './notebook';

/** Leaves after the first exit when it is sure, which it never is; the test is in line 15. */
const CELL = `import torch, workbench as wb
from torch import nn

class Exit(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.early = nn.Linear(32, 3)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Tanh())
        self.late = nn.Linear(64, 3)

    def forward(self, x):
        h = self.stem(x).relu()
        early = self.early(h)
        if early.softmax(1).amax(1).min() > 0.9:
            return early
        return early + self.late(self.body(h))

torch.manual_seed(0)
x, y = torch.randn(64, 16), torch.randint(0, 3, (64,))
exp = wb.Experiment(Exit(), (x, y), batch_size=32, name="asked")`;

test('A test that Python made of a tensor is a box with its line', async ({ page, tmpPath }) => {
  const view = await captured(page, `${tmpPath}/exit.ipynb`, CELL);
  const details = view.getByRole('complementary', { name: 'Details' });
  const condition = 'early.softmax(1).amax(1).min() > 0.9';

  await test.step('it is found, drawn, and says what was compared', async () => {
    const before = await pixels(drawing(view));
    await find(view, 'if early');
    await expect(details.getByRole('heading', { level: 2 })).toHaveText(`if ${condition}`);
    await expect(fact(details, 'Compared')).toHaveText(/^0\.\d{3} > 0\.900$/);
    await expect(fact(details, 'Result')).toHaveText('False');
    expect(await pixels(drawing(view))).not.toEqual(before);
    await page.screenshot({ path: picture('graph-if-light.png') });
    await setTheme(page, 'JupyterLab Dark');
    await expect.poll(() => backdrop(drawing(view))).toBeLessThan(60);
    await page.screenshot({ path: picture('graph-if-dark.png') });
    await setTheme(page, 'JupyterLab Light');
  });

  await test.step('keys lead from it to what was made next, and the table lists it', async () => {
    await drawing(view).focus();
    await page.keyboard.press('ArrowDown');
    await expect(details.getByRole('heading', { level: 2 })).toHaveText('linear');
    await page.keyboard.press('t');
    const row = view.getByRole('row').filter({ hasText: `if ${condition}` });
    await expect(row).toContainText('> 0.900 is False');
    await page.keyboard.press('Escape');
  });

  await test.step('the gradient of an operation is shown over powers of ten', async () => {
    await find(view, 'body tanh');
    const bars = details.getByRole('img', { name: /Share of the values by magnitude/ });
    await expect(bars.first()).toBeVisible();
    await expect(bars.first()).toHaveAccessibleName(/1e−\d+ to 1e−\d+: \d+\.\d %/);
  });

  await test.step('its line is a link to the cell', async () => {
    await find(view, 'if early');
    await details.getByRole('button', { name: 'cell 1, line 15' }).click();
    await expect(activeCell(page)).toContainText('early.softmax(1)');
    expect(await cursorLine(page)).toBe(15);
  });
});
