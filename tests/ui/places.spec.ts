import { expect, galata, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import { choose, drawing } from './graph-view';
import {
  execute,
  layoutSaved,
  longExperimentCode,
  lossLine,
  notebookFile,
  openSidePanel,
  panelOf,
  PATIENT,
  picture,
  press,
  reloadPage,
  runNotebook,
  segment,
  stepOf,
  upload,
} from './helpers';
import { scrolledTo } from './notebook';
import { Link } from './slow-link';

/** Where people have their notebooks, and how they look at them. */

test.describe('Two windows', () => {
  // The layout is the server's own: the second window is cloned from it.
  test.use({ mockState: false });

  test('on one notebook live on, each, when one is reloaded in the middle of a run', async ({
    page,
    tmpPath,
  }) => {
    await runNotebook(page, `${tmpPath}/two.ipynb`, [longExperimentCode('two')]);
    const panel = panelOf(page, 'two');
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);
    await execute(page, 'docmanager:save');
    const saved = layoutSaved(page, 'workbench-capture');
    await press(panel, 'Graph');
    await expect(page.getByRole('tab', { name: /two · .* graph/ })).toBeVisible(PATIENT);
    await saved;

    const other = await page.context().newPage();
    await other.goto('/lab/workspaces/beside?clone=default');
    await expect(other.getByRole('tab', { name: /two · .* graph/ })).toBeVisible(PATIENT);
    await expect(other.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible(
      PATIENT,
    );
    await other.getByRole('tab', { name: 'two.ipynb' }).click();
    const beside = panelOf(other, 'two');
    await expect(beside.getByRole('button', { name: 'Training' })).toBeVisible(PATIENT);
    await page.getByRole('tab', { name: 'two.ipynb' }).click();
    await segment(beside, 'Precision', 'bf16').click();
    await expect(segment(panel, 'Precision', 'bf16')).toBeChecked();

    const before = await stepOf(beside);
    await reloadPage(page);
    await expect(panel.getByRole('button', { name: 'Training' })).toBeVisible(PATIENT);
    await expect(segment(panel, 'Precision', 'bf16')).toBeChecked();
    await expect(lossLine(panel)).toHaveAttribute('d', /^M/);
    for (const one of [panel, beside]) {
      await expect.poll(() => stepOf(one)).toBeGreaterThan(before);
    }
    await press(panel, 'Pause');
    await press(beside, 'Resume');
    await expect(panel.getByRole('button', { name: 'Training' })).toBeVisible();
    await segment(panel, 'Precision', 'fp32').click();
    await expect(segment(beside, 'Precision', 'fp32')).toBeChecked();
    await other.screenshot({ path: picture('two-windows.png') });
    await press(beside, 'Stop');
    await expect(panel).toContainText('stopped');
    await other.close();
  });
});

test.describe('A notebook that has only what is in sight in the page', () => {
  test.use({
    mockSettings: {
      ...galata.DEFAULT_SETTINGS,
      '@jupyterlab/notebook-extension:tracker': { windowingMode: 'full' },
    },
  });

  test('has a panel and a graph that live when they come back into sight', async ({
    page,
    tmpPath,
  }) => {
    const graph = 'loss = torch.nn.functional.cross_entropy(model(x[:8]), y[:8])\nwb.graph(loss)';
    const filler = Array.from({ length: 40 }, () => 'print("\\n" * 10)');
    const cells = [longExperimentCode('far'), graph, ...filler];
    await runNotebook(page, `${tmpPath}/far.ipynb`, cells);
    const panel = panelOf(page, 'far');
    const view = (await scrolledTo(page, 1)).locator('.jp-OutputArea');
    await expect(drawing(view)).toBeVisible(PATIENT);
    await scrolledTo(page, 0);
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(20);

    // JupyterLab takes the graph's cell out of the layout; the panel's, whose drawing has
    // definitions, becomes transparent.
    await (await scrolledTo(page, cells.length - 1)).locator('.cm-content').click();
    await expect(drawing(view)).toBeHidden();
    await scrolledTo(page, 0);
    const before = await stepOf(panel);
    await expect.poll(() => stepOf(panel)).toBeGreaterThan(before);
    await expect(lossLine(panel)).toHaveAttribute('d', /^M/);
    await segment(panel, 'Precision', 'bf16').click();
    await expect(segment(panel, 'Precision', 'bf16')).toBeChecked();
    await press(panel, 'Stop');
    await scrolledTo(page, 1);
    await choose(view, 'Relu');
    await page.screenshot({ path: picture('windowed-graph.png') });
  });
});

const distant = test.extend<{ link: Link }>({
  // Playwright reads from the pattern what a fixture needs.
  link: async ({}, use, { project }) => {
    const link = await Link.to(Number(new URL(String(project.use.baseURL)).port));
    await use(link);
    link.close();
  },
  baseURL: ({ link }, use) => use(link.url),
});

distant(
  'a slow link has a panel that follows, toggles that work, and a graph',
  async ({ link, page, tmpPath }) => {
    link.isSlow = true; // once JupyterLab itself is there
    expect(await roundTrip(page)).toBeGreaterThan(400);
    await runNotebook(page, `${tmpPath}/slow.ipynb`, [longExperimentCode('slow')]);
    const panel = panelOf(page, 'slow');
    await press(panel, 'Train');
    await expect.poll(() => stepOf(panel), PATIENT).toBeGreaterThan(20);
    await segment(panel, 'Precision', 'bf16').click();
    await expect(segment(panel, 'Precision', 'bf16')).toBeChecked();
    await press(panel, 'Graph');
    const view = page.locator('.jp-Workbench-document:visible');
    await expect(view.getByRole('treeitem').filter({ hasText: 'loss' })).toBeVisible(PATIENT);
    await expect(drawing(view)).toBeVisible();
    await page.getByRole('tab', { name: 'slow.ipynb' }).click();
    await press(panel, 'Pause');
    await expect(panel.getByRole('button', { name: 'Resume' })).toBeEnabled();
    await press(panel, 'Stop');
    await expect(panel).toContainText('stopped');
  },
);

test('a folder may be called anything', async ({ page, tmpPath }) => {
  const folder = `${tmpPath}/a b/ü #1 %41 & what? ~'+=`;
  const lines = [
    'import torch',
    'class Net(torch.nn.Module):',
    '    def __init__(self):',
    '        super().__init__()',
    '        self.head = torch.nn.Linear(16, 3)',
    '    def forward(self, x):',
    '        return self.head(x)',
  ];
  await upload(page, lines.join('\n'), `${folder}/net #1.py`);
  const side = await openSidePanel(page);
  const cell = [
    'import importlib.util, torch, workbench as wb',
    'spec = importlib.util.spec_from_file_location("net", "net #1.py")',
    'net = importlib.util.module_from_spec(spec)',
    'spec.loader.exec_module(net)',
    'x, y = torch.randn(64, 16), torch.randint(0, 3, (64,))',
    'exp = wb.Experiment(net.Net(), (x, y), batch_size=32, epochs=2, name="odd")',
    'exp.run(wait=True)',
    'exp',
  ].join('\n');
  await runNotebook(page, `${folder}/50% & more?.ipynb`, [cell]);
  const panel = panelOf(page, 'odd');
  await expect(panel).toContainText('finished', PATIENT);
  await expect(side.locator('.wb-runs tbody tr')).toHaveCount(1);
  await page.screenshot({ path: picture('odd-folder.png') });

  await press(panel, 'TensorBoard');
  const frame = page.frameLocator('.jp-Workbench-tensorboard iframe');
  await expect(frame.locator('scalar-card').first()).toContainText('loss', PATIENT);

  await page.getByRole('tab', { name: '50% & more?.ipynb' }).click();
  await press(panel, 'Memory');
  const shown = page.locator('.jp-Workbench-document:visible');
  await expect(shown.locator('canvas').first()).toBeVisible(PATIENT);
  await execute(page, 'workbench:save-capture');

  await page.getByRole('tab', { name: '50% & more?.ipynb' }).click();
  await press(panel, 'Graph');
  await shown.getByRole('treeitem').filter({ hasText: 'head' }).first().click();
  await shown
    .getByRole('button', { name: /net #1\.py.*7/ })
    .first()
    .click();
  await expect(page.getByRole('tab', { name: 'net #1.py' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Ln 7, Col 1' })).toBeVisible();
});

/** Milliseconds that a kernel's answer takes, over the WebSocket that its messages go by. */
async function roundTrip(page: IJupyterLabPageFixture): Promise<number> {
  return page.evaluate(async () => {
    const kernel = await window.jupyterapp.serviceManager.kernels.startNew();
    await kernel.info;
    const began = performance.now();
    await kernel.requestKernelInfo();
    const took = performance.now() - began;
    await kernel.shutdown();
    return took;
  });
}
