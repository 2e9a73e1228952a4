import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { announced, isFocused } from './graph-view';
import { COMPILING, execute, picture, runNotebook, setTheme } from './helpers';
import { activeCell, cursorLine } from './notebook';

/** Its forward tests its data in line 11, where one graph ends and the next begins. */
const MODEL = `import torch, workbench as wb
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 16)

    def forward(self, x):
        h = torch.relu(self.body(x))
        if h.sum() > 0:
            h = h * 2
        return torch.softmax(h, dim=1)

torch._inductor.config.compile_threads = 1
net = torch.compile(Net())`;
/** The second batch has another size: what was compiled for the first does not fit. */
const COMPILED = `with torch.no_grad(), wb.compile_report() as report:
    for size in (4, 6):
        net(torch.ones(size, 16))
saved = report.save("net.compile.safetensors")
report`;
/** The same report in a widget that carries no code: it requests it from the kernel. */
const WITHOUT_CODE = `import workbench.dynamo.view
workbench.dynamo.view.MOST_CODE = 0
report`;
const EAGER = `with wb.compile_report() as eager:
    Net()(torch.ones(4, 16))
eager`;

test('a compile report leads to the cells, and shows what was generated', async ({
  page,
  tmpPath,
}) => {
  await runNotebook(page, `${tmpPath}/compile.ipynb`, [MODEL, COMPILED, WITHOUT_CODE, EAGER]);
  const view = page.locator('.wv-compile').first();
  const findings = view.getByRole('region', { name: 'Breaks and recompiles' });
  const graphs = view.getByRole('grid', { name: 'Graphs by region' });
  const kernels = view.getByRole('listbox', { name: 'Kernels of the graph' });

  await test.step('what it came to stands at the top', async () => {
    // The first compilation of a process runs the C++ compiler on a shared machine.
    const counts = view.getByRole('list', { name: 'Counts' });
    await expect(counts).toContainText('1 graph break', COMPILING);
    await expect(counts).toContainText('1 region');
    await expect(counts).toContainText(/[1-9]\d* recompile/);
    await expect(view.getByRole('list', { name: /^Compiling took \d/ })).toContainText('g++');
  });

  const broken = findings.getByRole('listitem', { name: /^Graph break at Cell \[1\], line 11/ });
  await test.step('a click on a break leads to its line of its cell', async () => {
    await expect(broken).toContainText('if h.sum() > 0:');
    await expect(broken).toContainText('Data-dependent branching');
    await broken.getByRole('button', { name: 'Cell [1], line 11' }).click();
    await expect(activeCell(page)).toContainText('class Net(nn.Module)');
    expect(await cursorLine(page)).toBe(11);
  });

  await test.step('and so does Enter, on a recompile too', async () => {
    await graphs.getByRole('row', { selected: true }).focus();
    await page.keyboard.press('b');
    await expect.poll(() => isFocused(broken)).toBe(true);
    await page.keyboard.press('ArrowDown');
    const again = findings.getByRole('listitem', { name: /^Recompiled at Cell \[1\], line/ });
    await expect.poll(() => isFocused(again.first())).toBe(true);
    await expect(again.first()).toContainText('was 4 and is 6');
    const [, line] =
      /line (\d+)/.exec((await again.first().getAttribute('aria-label')) ?? '') ?? [];
    await page.keyboard.press('Enter');
    await expect(activeCell(page)).toContainText('class Net(nn.Module)');
    expect(await cursorLine(page)).toBe(Number(line));
  });

  await test.step('a graph has its kernels, a kernel what was fused and its source', async () => {
    await graphs
      .getByRole('row', { name: /from line 1\d on/ })
      .first()
      .click();
    const fused = kernels.getByRole('option').filter({ hasText: 'aten._softmax' });
    await fused.first().click();
    await expect(fused.first()).toHaveAttribute('aria-selected', 'true');
    const source = view.getByRole('region', { name: /^Source of cpp_fused_.*softmax/ });
    await expect(source).toContainText('extern "C"');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.keyboard.press('c');
    await expect(announced(view)).toHaveText(/^Copied cpp_fused/);
    expect(await page.evaluate(() => navigator.clipboard.readText())).toContain('extern "C"');
  });

  await test.step('a filter leaves what it names', async () => {
    await page.keyboard.press('/');
    await page.keyboard.type('softmax');
    await expect(graphs.getByRole('row', { name: /^forward\b(?!, from)/ })).toHaveCount(0);
    await page.keyboard.press('Escape');
    await expect(graphs.getByRole('row', { name: /^forward\b(?!, from)/ }).first()).toBeVisible();
  });

  await test.step('it wears the theme of the page', async () => {
    await shoot(page, view, 'light');
    await setTheme(page, 'JupyterLab Dark');
    await expect(view).toHaveAttribute('data-wb-theme', 'dark');
    await shoot(page, view, 'dark');
    await setTheme(page, 'JupyterLab Light');
  });

  await test.step('a source that did not come along is requested from the kernel', async () => {
    const withoutCode = page.locator('.wv-compile').nth(1);
    await withoutCode.scrollIntoViewIfNeeded();
    await expect(withoutCode.getByRole('region', { name: /^Source of/ })).toContainText(
      'extern "C"',
    );
  });

  await test.step('where nothing was compiled it says so, and what compiles', async () => {
    const nothing = page.locator('.wv-compile').nth(2);
    await nothing.scrollIntoViewIfNeeded();
    await expect(nothing).toContainText('Nothing was compiled in this block');
    await expect(nothing).toContainText('torch.compile(model)(x)');
  });

  await test.step('the palette adds a cell for one', async () => {
    await execute(page, 'workbench:insert-compile-report');
    await expect(activeCell(page)).toContainText('wb.compile_report(exp)');
  });

  await test.step('a saved report opens in a tab, and still leads to the cell', async () => {
    await execute(page, 'docmanager:open', { path: `${tmpPath}/net.compile.safetensors` });
    await expect(page.getByRole('tab', { name: 'net.compile.safetensors' })).toBeVisible();
    const tab = page.locator('.jp-Workbench-document:visible .wv-compile');
    await expect(tab.getByRole('list', { name: 'Counts' })).toContainText('1 graph break');
    await page.screenshot({ path: picture('compile-report-file.png') });
    await tab.getByRole('button', { name: 'Cell [1], line 11' }).first().click();
    await expect(activeCell(page)).toContainText('class Net(nn.Module)');
    expect(await cursorLine(page)).toBe(11);
  });
});

async function shoot(page: IJupyterLabPageFixture, view: Locator, name: string): Promise<void> {
  await view.scrollIntoViewIfNeeded();
  await page.screenshot({ path: picture(`compile-report-${name}.png`) });
}
