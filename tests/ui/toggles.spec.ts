import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { COMPILING, execute, picture, runNotebook, PATIENT, segment, stepOf } from './helpers';

/** What a badge says once there are enough steps on both sides, whatever this machine measured. */
const MEASURED = /\d× faster|\d× slower|no clear effect|unclear/;

/** Rows of a handwritten digit, read by a transformer: something of it is every mode's business. */
const MODEL = `import torch, workbench as wb
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

torch._inductor.config.compile_threads = 1
torch.set_num_threads(1)

class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(x)

class Digits(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.rows = nn.Linear(8, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.blocks(self.rows(x)).mean(1))

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:1792] / 16
y = torch.tensor(digits.target)[:1792]
exp = wb.Experiment(Digits(), (x, y), batch_size=64, epochs=100_000, name="digits")
exp`;
const REPORT = 'wb.compile_report(exp)';

test('every toggle is pressed on a running experiment, and each says what it did', async ({
  page,
  tmpPath,
}) => {
  test.setTimeout(1_800_000);
  await page.sidebar.close('left');
  await runNotebook(page, `${tmpPath}/toggles.ipynb`, [MODEL, REPORT]);
  const panel = page.getByRole('region', { name: /^Experiment digits/ });
  await expect(button(panel, 'Train')).toBeEnabled(PATIENT);

  await test.step('before anything is compiled, the report says how to', async () => {
    await expect(page.locator('.wv-compile')).toContainText('Compile is off');
    await expect(page.locator('.wv-compile')).toContainText('exp.modes = "compile"');
  });

  await button(panel, 'Train').click();
  await goesOn(panel, 60);

  await test.step('what this machine cannot do says why, to pointer and keyboard', async () => {
    const blocked = panel.locator('[role=radio][aria-disabled=true]');
    // Torch has no efficient attention for any CPU; others depend on the machine.
    const names = await blocked.evaluateAll((all) => all.map((one) => one.textContent));
    expect(names).toContain('efficient');
    for (const name of names) await explains(page, panel, name ?? '');
  });

  await test.step('the row holds every mode; what is rare of many choices is behind more', async () => {
    const tops = await panel
      .locator('.wb-mode')
      .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().top));
    expect(tops).toHaveLength(5);
    expect(new Set(tops).size).toBe(1);
    await more(panel, 'Precision').click();
    const list = page.getByRole('dialog', { name: 'More of Precision' });
    await expect(list.getByRole('listitem')).not.toHaveCount(0);
    for (const item of await list.getByRole('listitem').all())
      await expect(item.getByRole('paragraph')).toHaveText(/\w/);
    await page.keyboard.press('Escape');
    await expect(more(panel, 'Precision')).toBeFocused();
  });

  for (const value of ['bf16', 'fp16', 'fp8', 'fp8-rowwise', 'mxfp8'])
    await test.step(`Precision ${value}`, () => press(panel, 'Precision', value));
  await back(panel, 'Precision', 'fp32');

  for (const value of ['math', 'flash'])
    await test.step(`Attention ${value}`, () => press(panel, 'Attention', value));
  await back(panel, 'Attention', 'auto');

  await test.step('Checkpoint auto', () => press(panel, 'Checkpoint', 'auto'));
  await back(panel, 'Checkpoint', 'off');

  await test.step('compiling goes on beside the run, and the value in use gives it up', async () => {
    await segment(panel, 'Compile', 'blocks').click();
    await expect(badge(panel, 'Compile')).toHaveText(/^compiling, \d+ s/);
    const before = await stepOf(panel);
    await goesOn(panel, 10);
    await expect(segment(panel, 'Compile', 'off')).toBeChecked();
    await expect(panel.getByRole('radiogroup', { name: 'Compile' })).toHaveAttribute(
      'aria-busy',
      'true',
    );
    await panel.screenshot({ path: picture('toggles-compile-ahead.png') });
    expect(await stepOf(panel)).toBeGreaterThan(before);
    await segment(panel, 'Compile', 'off').click();
    await expect(badge(panel, 'Compile')).not.toHaveText(/compiling/);
  });

  for (const value of ['blocks', 'whole'])
    await test.step(`Compile ${value}`, () => press(panel, 'Compile', value, COMPILING));
  await panel.screenshot({ path: picture('toggles-compile.png') });
  await back(panel, 'Compile', 'off');

  await test.step('the report of this experiment has both, each once', async () => {
    await execute(page, 'notebook:move-cursor-down');
    await execute(page, 'notebook:run-cell');
    const report = page.locator('.wv-compile');
    const regions = report.getByRole('grid', { name: 'Graphs by region' });
    await expect(regions).toContainText('blocks.0 and blocks.1 (Block)', PATIENT);
    await expect(regions).toContainText('Digits');
    await expect(report.getByRole('list', { name: 'Switches of modes' })).toContainText('compile');
    const fused = report.getByRole('listbox', { name: 'Kernels of the graph' });
    await expect(fused.getByRole('option').first()).toContainText('aten.');
    await report.scrollIntoViewIfNeeded();
    await page.screenshot({ path: picture('toggles-report.png') });
    await panel.scrollIntoViewIfNeeded();
  });

  for (const value of ['ddp:2', 'fsdp:2'])
    await test.step(`Parallel ${value}`, () => press(panel, 'Parallel', value));
  await panel.screenshot({ path: picture('toggles-parallel.png') });
  await back(panel, 'Parallel', 'off');

  await test.step('and it still trains', async () => {
    await goesOn(panel, 20);
    await button(panel, 'Stop').click();
    await expect(button(panel, 'Train')).toBeEnabled(PATIENT);
  });
});

/** Presses a choice while it trains: it is taken, measured, and no step is lost to it. */
async function press(
  panel: Locator,
  mode: string,
  value: string,
  patience = PATIENT,
): Promise<void> {
  const before = await stepOf(panel);
  if ((await segment(panel, mode, value).count()) === 0) {
    await more(panel, mode).click();
    const list = panel.page().getByRole('dialog', { name: `More of ${mode}` });
    await list.getByRole('button', { name: value, exact: true }).click();
  } else await segment(panel, mode, value).click();
  await expect(segment(panel, mode, value)).toBeChecked(patience);
  await expect(badge(panel, mode)).toHaveText(MEASURED, patience);
  await expect(button(panel, 'Training')).toBeVisible();
  expect(await stepOf(panel)).toBeGreaterThan(before);
}

/** Back to the default, for as many steps as it takes to measure the next choice against it. */
async function back(panel: Locator, mode: string, value: string): Promise<void> {
  await test.step(`${mode} back to ${value}`, async () => {
    await segment(panel, mode, value).click();
    await expect(segment(panel, mode, value)).toBeChecked(PATIENT);
    await expect(badge(panel, mode)).toHaveText('baseline', PATIENT);
    await goesOn(panel, 25);
  });
}

/** A choice that cannot be made gives a reason and a remedy, and stays unmade. */
async function explains(page: IJupyterLabPageFixture, panel: Locator, name: string): Promise<void> {
  const choice = panel.getByRole('radio', { name, exact: true });
  const reason = page.locator('.wb-pop').filter({ hasText: `${name} is not available here` });
  await choice.hover();
  await expect(reason).toContainText('Why');
  await expect(reason).toContainText(/Instead|Do this/);
  await choice.click({ force: true }); // Playwright waits for what is disabled to be enabled
  await expect(reason).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(reason).toHaveCount(0);
  await page.mouse.move(0, 0);

  // To the group by its tab stop, within it by arrows: the reason comes with the focus.
  const group = choice.locator('xpath=ancestor::*[@role="radiogroup"]');
  await group.getByRole('radio', { checked: true }).focus();
  await page.keyboard.press('Home');
  for (let moved = 0; moved < 12 && !(await isFocused(choice)); moved += 1)
    await page.keyboard.press('ArrowRight');
  await expect(reason).toContainText('Why');
  await page.keyboard.press('Enter');
  await expect(reason).toBeVisible();
  await expect(choice).not.toBeChecked();
  await page.keyboard.press('Escape');
  await expect(reason).toHaveCount(0);
}

async function isFocused(element: Locator): Promise<boolean> {
  return element.evaluate((node) => node === document.activeElement);
}

async function goesOn(panel: Locator, steps: number): Promise<void> {
  const before = await stepOf(panel);
  await expect.poll(() => stepOf(panel), PATIENT).toBeGreaterThanOrEqual(before + steps);
}

function button(panel: Locator, name: string): Locator {
  return panel.getByRole('button', { name, exact: true });
}

/** What opens the list of a mode's rare choices. */
function more(panel: Locator, mode: string): Locator {
  return panel.getByRole('button', { name: new RegExp(`^More of ${mode}`) });
}

/** The first line of a mode's badge. */
function badge(panel: Locator, mode: string): Locator {
  const choices = panel.page().getByRole('radiogroup', { name: mode });
  return panel.locator('.wb-mode', { has: choices }).locator('.wb-badge strong');
}
