/** The graph view in JupyterLab, as the browser tests see and use it. */
import { expect, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { execute, experimentKnown, PATIENT, runNotebook } from './helpers';

/** `side` is trained by nothing: its output is detached, in line 14 of this cell. */
const CELL = `import torch, workbench as wb
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.side = nn.Linear(32, 3)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Tanh())
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        h = self.stem(x)
        aside = self.side(h).detach()
        return self.head(self.body(h)) + aside

torch.manual_seed(0)
x, y = torch.randn(64, 16), torch.randint(0, 3, (64,))
exp = wb.Experiment(Net(), (x, y), batch_size=32, name="asked")`;

/**
 * The same model as one compiled region, in place, so that it keeps its backend: of
 * `torch.compile(net)` an experiment makes its mode.
 */
export const COMPILED = CELL.replace(
  'Net(),',
  '(lambda net: net.compile(backend="aot_eager") or net)(Net()),',
);

/** Runs the cell, captures a step, and gives the view in its tab. */
export async function captured(
  page: IJupyterLabPageFixture,
  path: string,
  cell = CELL,
): Promise<Locator> {
  // The last cell is the active one, until a link leads elsewhere.
  await runNotebook(page, path, [cell, 'last = True']);
  await experimentKnown(page);
  await page.sidebar.close('left');
  await execute(page, 'workbench:capture-graph');
  await expect(page.getByRole('tab', { name: /asked · .* graph/ })).toBeVisible(PATIENT);
  const view = page.locator('.jp-Workbench-document:visible');
  await expect(view.getByRole('treeitem').filter({ hasText: 'loss' })).toBeVisible(PATIENT);
  return view;
}

export function drawing(view: Locator): Locator {
  return view.locator('canvas[role=application]');
}

export function button(within: Locator, name: string): Locator {
  return within.getByRole('button', { name }).first();
}

/** What a screen reader was sent last. */
export function announced(view: Locator): Locator {
  return view.locator('.wv-sr[role=status]');
}

export async function breadcrumbs(view: Locator): Promise<string> {
  return (await view.getByRole('navigation', { name: 'Selected module' }).textContent()) ?? '';
}

export function fact(details: Locator, label: string): Locator {
  return details
    .locator('dt', { hasText: label })
    .first()
    .locator('xpath=following-sibling::dd[1]');
}

/** Selects a module in the list on the left. */
export async function choose(view: Locator, module: string): Promise<void> {
  const row = view
    .getByRole('treeitem')
    .filter({ has: view.page().getByText(module, { exact: true }) });
  await row.first().click();
  await expect(view.locator('.wv-inspector h2')).toHaveText(module);
}

/** Selects the first match of a search, and leaves the field empty. */
export async function find(view: Locator, query: string): Promise<void> {
  const field = view.getByRole('searchbox');
  await field.fill(query);
  await expect(view.locator('.wv-find output')).toHaveText(/^1 of \d+$/);
}

export async function isFocused(element: Locator): Promise<boolean> {
  return element.evaluate((node) => node === document.activeElement);
}

/** A point of the drawing at which a click selects `title`: the pointer is led over it for that. */
export async function spotOf(view: Locator, title: string): Promise<{ x: number; y: number }> {
  const canvas = drawing(view);
  const { mouse } = view.page();
  await button(view, 'Fit').click();
  const area = (await canvas.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
  const isBox = () => canvas.evaluate((node) => node.classList.contains('pointing'));
  for (let y = 16; y < area.height; y += 20)
    for (let x = 20; x < area.width / 2; x += 20) {
      await mouse.move(area.x + x, area.y + y);
      if (!(await isBox())) continue;
      // Past the mark at the left of a box, which opens it at the first click.
      const position = { x: x + 48, y };
      await canvas.click({ position });
      if ((await view.locator('.wv-inspector h2').textContent()) === title) return position;
      break;
    }
  throw new Error(`no click on the drawing selects ${title}`);
}

/** Bytes of what a canvas shows. */
export async function pixels(canvas: Locator): Promise<Buffer> {
  return canvas.screenshot();
}
