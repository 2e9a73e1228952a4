import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { existsSync } from 'node:fs';
import {
  execute,
  layoutSaved,
  picture,
  reloadPage,
  runNotebook,
  pictures,
  PATIENT,
} from './helpers';
import { put, putHostile, putLong, putSnapshot, putStep, realTrace } from './snapshot-files';

/** A file in the browser on the left, which is shown there. */
async function fileItem(page: IJupyterLabPageFixture, folder: string, name: string) {
  await page.filebrowser.openDirectory(folder);
  const item = page.locator('.jp-DirListing-item').filter({ hasText: name });
  await expect(item).toBeVisible();
  return item;
}

/** Room for the view: the left side takes none of it. */
async function wide(page: IJupyterLabPageFixture): Promise<void> {
  await page.sidebar.close('left');
}

const memoryView = (page: IJupyterLabPageFixture): Locator =>
  page.locator('.jp-Workbench-document .wv-memory');
const chooser = (page: IJupyterLabPageFixture): Locator =>
  page.locator('.jp-Workbench-document .wv-overview');

/** The row "What if?", opened. */
async function whatIf(view: Locator): Promise<Locator> {
  const row = view.getByRole('region', { name: 'What if?' });
  const toggle = row.getByRole('button', { name: 'What if?' });
  if ((await toggle.getAttribute('aria-expanded')) === 'false') await toggle.click();
  return row;
}

test('a snapshot opens by a double click and is explored', async ({ page, tmpPath }) => {
  const real = realTrace('transformer_training_step.pickle');
  if (real === null) await putSnapshot(page, `${tmpPath}/snapshot.pickle`);
  else await put(page, real, `${tmpPath}/snapshot.pickle`);
  await (await fileItem(page, tmpPath, 'snapshot.pickle')).dblclick();
  const view = memoryView(page);
  await expect(view.locator('canvas.wv-map')).toBeVisible(PATIENT);
  await wide(page);
  await expect(page.getByRole('tab', { name: 'snapshot.pickle' })).toBeVisible();
  await expect(view.locator('.wv-split')).toContainText('exact');

  const chart = view.locator('canvas.wv-timeline');
  const spoken = view.locator('.wv-sr[role=status]');
  await chart.click({ position: { x: 400, y: 120 } });
  await expect(spoken).toContainText(/event [\d,]+, [\d.]+ milliseconds/);
  const before = (await spoken.textContent()) ?? '';
  await page.keyboard.press('ArrowRight');
  await expect(spoken).not.toHaveText(before);
  await page.keyboard.press('End');
  await view.locator('canvas.wv-map').focus();
  await page.keyboard.press('ArrowRight');
  await expect(view.locator('.wv-inspector')).toContainText(/segment › block \d+ of \d+/);

  await view.locator('input[type=search]').fill('>2mib');
  await view.getByRole('button', { name: 'Holders', exact: true }).click();
  await expect(view.locator('.wv-part').filter({ hasText: 'Who holds' })).toContainText(/block/);
  await view.locator('input[type=search]').fill('');
  await view.getByRole('button', { name: /^Map/ }).click();
  await pictures(page, 'snapshot');
});

test('"What if?" works on the file of a snapshot', async ({ page, tmpPath }) => {
  const real = realTrace('cnn_old_schema.pickle');
  if (real === null) await putSnapshot(page, `${tmpPath}/oom.pkl`);
  else await put(page, real, `${tmpPath}/oom.pkl`);
  const item = await fileItem(page, tmpPath, 'oom.pkl');
  await item.click({ button: 'right' });
  const menu = page.locator('.lm-Menu');
  await menu.getByText('Open With', { exact: true }).hover();
  await menu.getByText('Workbench Memory', { exact: true }).click();
  const view = memoryView(page);
  await expect(view.locator('canvas.wv-map')).toBeVisible(PATIENT);
  await wide(page);
  const row = await whatIf(view);
  const said = row.locator('.wv-wi-said');
  await expect(said).toContainText(/^Recorded peak [\d.]+ [MG]iB/, PATIENT);
  await expect(row.getByRole('slider', { name: 'Batch size' })).toBeDisabled();
  await row.getByRole('switch').click();
  await expect(said).toContainText(/^Predicted peak [\d.]+ [MG]iB.*fits/, PATIENT);
  await pictures(page, 'snapshot-what-if');
});

test('what if moves the batch of a saved step', async ({ page, tmpPath }) => {
  await putStep(page, `${tmpPath}/step.memory.safetensors`);
  await (await fileItem(page, tmpPath, 'step.memory.safetensors')).dblclick();
  const view = memoryView(page);
  await expect(view.locator('canvas.wv-timeline')).toBeVisible(PATIENT);
  await wide(page);
  const row = await whatIf(view);
  const said = row.locator('.wv-wi-said');
  await expect(said).toContainText(/peak [\d.]+ [KMG]iB/, PATIENT);
  const before = (await said.locator('b').first().textContent()) ?? '';
  const batch = row.getByRole('slider', { name: 'Batch size' });
  await expect(batch).toHaveAttribute('aria-valuetext', '64 samples');
  await batch.focus();
  await page.keyboard.press('End');
  await expect(said.locator('b').first()).not.toHaveText(before, PATIENT);
  await expect(row.locator('.wv-wi-label').filter({ hasText: 'recorded 64' })).toBeVisible();
  await pictures(page, 'snapshot-batch');
});

test('a long recording is opened range by range', async ({ page, tmpPath, request }) => {
  await putLong(request, `${tmpPath}/long_snapshot.pickle`, 2_100_000);
  await (await fileItem(page, tmpPath, 'long_snapshot.pickle')).dblclick();
  const reading = page.locator('.jp-Workbench-notice').filter({ hasText: 'Reading' });
  await expect(reading.getByRole('button', { name: 'Stop' })).toBeVisible();
  await wide(page);
  await page.screenshot({ path: picture('snapshot-reading.png') });
  const afar = chooser(page);
  await expect(afar).toBeVisible(PATIENT);
  await expect(afar).toContainText('2,100,000 events over 23.1 s on cuda:0');
  await pictures(page, 'snapshot-range');

  const open = afar.getByRole('button', { name: 'Open this range' });
  const start = afar.getByRole('slider', { name: 'First event' });
  const end = afar.getByRole('slider', { name: 'Event after the range' });
  await start.focus();
  await page.keyboard.press('Home');
  await end.focus();
  await page.keyboard.press('End');
  await expect(afar.getByRole('alert')).toContainText('At most 2,000,000 events');
  await expect(open).toHaveAttribute('aria-disabled', 'true');
  await pictures(page, 'snapshot-range-refused');

  const plot = (await afar.locator('.wv-plot').boundingBox()) ?? { x: 0, y: 0, width: 0 };
  await afar.getByRole('button', { name: 'The beginning' }).click();
  await page.mouse.move(plot.x + 0.5 * plot.width, plot.y + 200);
  await page.mouse.down();
  await page.mouse.move(plot.x + 0.6 * plot.width, plot.y + 180, { steps: 6 });
  await page.mouse.up();
  await expect(afar.locator('.wv-chosen')).toContainText(/^2\d\d,\d{3} events/);
  await start.focus();
  await page.keyboard.press('Shift+ArrowRight');
  await expect(afar.locator('.wv-chosen')).toContainText(/^1\d\d,\d{3} events/);
  await page.keyboard.press('Enter');
  const view = memoryView(page);
  await expect(view.locator('canvas.wv-timeline')).toBeVisible(PATIENT);
  const part = view.getByRole('button', { name: /^Events [\d,]+ to [\d,]+ of 2,100,000/ });
  await expect(part).toBeVisible();
  await pictures(page, 'snapshot-range');

  await part.click();
  await expect(afar.locator('.wv-chosen')).toContainText(/^1\d\d,\d{3} events/);
  await page.keyboard.press('Escape');
  await expect(view.locator('canvas.wv-timeline')).toBeVisible();
  await part.click();
  await afar.getByRole('textbox', { name: 'From event' }).fill('1000000');
  await afar.getByRole('textbox', { name: 'to', exact: true }).fill('1100000');
  await page.keyboard.press('Enter');
  await expect(
    view.getByRole('button', { name: 'Events 1,000,000 to 1,100,000 of 2,100,000' }),
  ).toBeVisible(PATIENT);
});

test('what is no snapshot says so, and can be tried again', async ({ page, tmpPath }) => {
  await putHostile(page, `${tmpPath}/hostile_snapshot.pickle`);
  await (await fileItem(page, tmpPath, 'hostile_snapshot.pickle')).dblclick();
  const face = page.locator('.jp-Workbench-notice[role=alert]');
  await expect(face).toContainText('asks for the Python object os.system', PATIENT);
  await expect(face).toContainText('torch.cuda.memory._dump_snapshot(path)');
  await pictures(page, 'snapshot-hostile');
  expect(existsSync('/tmp/workbench-was-here')).toBe(false);
  await page.contents.deleteFile(`${tmpPath}/hostile_snapshot.pickle`);
  await putSnapshot(page, `${tmpPath}/hostile_snapshot.pickle`);
  await face.getByRole('button', { name: 'Try again' }).click();
  await expect(memoryView(page).locator('canvas.wv-map')).toBeVisible(PATIENT);
});

test('of several devices the busiest is shown, and another a choice away', async ({
  page,
  tmpPath,
  request,
}) => {
  await putLong(request, `${tmpPath}/two_snapshot.pickle`, 3000, 1200);
  await execute(page, 'docmanager:open', { path: `${tmpPath}/two_snapshot.pickle` });
  const view = memoryView(page);
  const device = view.getByRole('combobox', { name: 'Device' });
  await expect(device).toHaveValue('0', PATIENT);
  await view.locator('canvas.wv-timeline').focus();
  await device.selectOption('1');
  await expect(view.locator('.wv-title')).toContainText('cuda:1', PATIENT);
  await expect(device).toHaveValue('1');
  await page.screenshot({ path: picture('snapshot-devices.png') });
});

test('a pickle of unknown origin is not taken over, nothing is copied aside, a tab comes back', async ({
  page,
  tmpPath,
}) => {
  await putSnapshot(page, `${tmpPath}/weights.pkl`);
  const factories = await page.evaluate((path) => {
    const { docRegistry } = window.jupyterapp;
    return {
      first: docRegistry.defaultWidgetFactory(path).name,
      all: docRegistry.preferredWidgetFactories(path).map(({ name }) => name),
    };
  }, `${tmpPath}/weights.pkl`);
  expect(factories.first).not.toBe('Workbench Memory');
  expect(factories.all).toContain('Workbench Memory');
  const path = `${tmpPath}/weights.pkl`;
  const saved = layoutSaved(page, `workbench-memory:${path}`);
  await execute(page, 'docmanager:open', { path, factory: 'Workbench Memory' });
  await expect(memoryView(page).locator('canvas.wv-map')).toBeVisible(PATIENT);
  const copies = await page.evaluate(
    (of) => window.jupyterapp.serviceManager.contents.listCheckpoints(of),
    path,
  );
  expect(copies).toEqual([]);
  await saved;
  await reloadPage(page);
  await expect(page.getByRole('tab', { name: 'weights.pkl' })).toBeVisible(PATIENT);
  await expect(memoryView(page).locator('canvas.wv-map')).toBeVisible(PATIENT);
});

const STEP = `import torch, workbench as wb
torch.manual_seed(0)
x, y = torch.randn(256, 64), torch.randint(0, 3, (256,))
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 3))
exp = wb.Experiment(model, (x, y), batch_size=64, epochs=1, name="asked")
wb.memory(exp)`;

test('a kernel answers for a recording in a cell, and for a capture in a tab', async ({
  page,
  tmpPath,
}) => {
  await runNotebook(page, `${tmpPath}/asked.ipynb`, [STEP]);
  const cell = page.locator('.jp-OutputArea .wv-memory');
  await expect(cell.locator('canvas.wv-timeline')).toBeVisible(PATIENT);
  const inCell = (await whatIf(cell)).locator('.wv-wi-said');
  await expect(inCell).toContainText(/peak [\d.]+ [KMG]iB.*fits/, PATIENT);
  await cell.scrollIntoViewIfNeeded();
  await page.screenshot({ path: picture('ask-cell.png') });

  await execute(page, 'workbench:capture-memory');
  const tab = page.locator('.jp-Workbench-document .wv-memory');
  await expect(tab.locator('canvas.wv-timeline')).toBeVisible(PATIENT);
  const row = await whatIf(tab);
  await expect(row.locator('.wv-wi-said')).toContainText(/peak [\d.]+ [KMG]iB.*fits/, PATIENT);
  await page.screenshot({ path: picture('ask-tab.png') });

  await execute(page, 'workbench:capture-graph');
  const graph = page.locator('.jp-Workbench-document .wv-graph');
  await expect(graph.locator('canvas.wv-surface')).toBeVisible(PATIENT);
  await page.getByRole('tab', { name: /asked · step 2 · memory/ }).click();
  await tab.getByRole('row', { name: /0\.weight\.exp_avg / }).click();
  await tab.getByRole('button', { name: 'Show its module in the graph' }).click();
  await expect(graph.getByRole('treeitem', { selected: true })).toContainText('0', PATIENT);
  await page.screenshot({ path: picture('ask-module.png') });
  await page.getByRole('tab', { name: /asked · step 2 · memory/ }).click();

  await page.evaluate(() => window.jupyterapp.serviceManager.sessions.shutdownAll());
  await row.getByRole('switch').click();
  await expect(row.getByRole('alert')).toContainText(/kernel/, PATIENT);
  await expect(row.getByRole('button', { name: 'Try again' })).toBeVisible();
  await page.screenshot({ path: picture('ask-gone.png') });
});
