import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import {
  execute,
  experimentCode,
  longExperimentCode,
  openSidePanel,
  PATIENT,
  picture,
  pictures,
  runAll,
  runNotebook,
  setTheme,
} from './helpers';

/** Trains for a long time, with a checkpoint every twenty steps. */
const CODE = longExperimentCode('net').replace(', name=', ', checkpoint_every=20, name=');
/** Judged by a model of its own, in one line: a cell that is typed indents by itself. */
const CHECK = [
  'judge = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))',
  'found = wb.load_weights(judge, "runs/net", "best")',
  'pairs = list(zip(judge.parameters(), exp.model.parameters(), strict=True))',
  'print("equal:", all(torch.equal(a, b) for a, b in pairs), found.step)',
].join('; ');

async function restart(page: IJupyterLabPageFixture): Promise<void> {
  const restarted = execute(page, 'notebook:restart-kernel');
  await page.getByRole('button', { name: 'Confirm Kernel Restart' }).click();
  await restarted;
  // JupyterLab 4.6 may leave its connection in "restarting", with and without this extension.
  await execute(page, 'notebook:reconnect-to-kernel');
}

test('a run that its kernel left goes on from the side panel', async ({ page, tmpPath }) => {
  expect(CODE).toContain('checkpoint_every=20');
  const panel = await openSidePanel(page);
  const status = page.locator('.jp-Workbench-status');
  const path = await runNotebook(page, `${tmpPath}/resume.ipynb`, [CODE]);
  await execute(page, 'workbench:toggle-training');
  await expect(status).toContainText(/training [\d,]+\/32,000/);
  const resume = panel.getByRole('button', { name: 'Resume net', exact: true });
  await expect(resume).toHaveAttribute('title', 'net is training.', PATIENT);
  await expect(status).toContainText(/training (?:[2-9]\d\d|[\d]+,\d\d\d)\/32,000/, PATIENT);

  await restart(page);
  await panel.getByRole('button', { name: 'Read the runs again' }).click();
  await expect(resume).toHaveAttribute(
    'title',
    'Run the cells that create the experiment of net first.',
    PATIENT,
  );
  await runAll(page, path);
  await expect(resume).toHaveAttribute('title', /^Resume net from step [\d,]+ in net-2$/, PATIENT);
  const title = (await resume.getAttribute('title')) ?? '';
  const from = Number(/step ([\d,]+)/.exec(title)?.[1]?.replace(',', ''));
  await panel.locator('.wb-runs tbody tr', { hasText: 'net' }).first().hover();
  await page.screenshot({ path: picture('resume-offered-light.png') });
  await setTheme(page, 'JupyterLab Dark');
  await panel.locator('.wb-runs tbody tr', { hasText: 'net' }).first().hover();
  await page.screenshot({ path: picture('resume-offered-dark.png') });

  await resume.click();
  await expect(panel).toContainText('net-2 goes on where net was.', PATIENT);
  await expect(status).toContainText(/training [\d,]+\/32,000/, PATIENT);
  const at = Number(
    /training ([\d,]+)\//.exec((await status.textContent()) ?? '')?.[1]?.replace(',', ''),
  );
  expect(at).toBeGreaterThanOrEqual(from);
  await expect(panel.locator('.wb-runs tbody tr')).toHaveCount(1);
  await execute(page, 'workbench:toggle-training');
  await expect(status).toContainText(/paused [\d,]+\/32,000/);
  await pictures(page, 'resumed');
});

test('the best weights of a run are loaded by a click', async ({ page, tmpPath }) => {
  const panel = await openSidePanel(page);
  const trained = `${experimentCode('net')}\nexp.run(wait=True)\nnet = exp.model\nexp.close()`;
  const other = experimentCode('other').replace('manual_seed(0)', 'manual_seed(1)');
  await runNotebook(page, `${tmpPath}/best.ipynb`, [trained, other]);
  const best = panel.getByRole('button', { name: 'Load the best weights of net', exact: true });
  await panel.getByRole('button', { name: 'Read the runs again' }).click();
  await expect(best).toHaveAttribute('title', /in other$/, PATIENT);
  await best.click();
  await expect(panel).toContainText('The best weights of net are in other.', PATIENT);
  await page.notebook.addCell('code', CHECK);
  const cells = await page.notebook.getCellCount();
  await page.notebook.runCell(cells - 1);
  await expect(page.locator('.jp-OutputArea-output').last()).toHaveText(/^equal: True \d+\n$/);
});
