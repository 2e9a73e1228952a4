import { expect, test } from '@jupyterlab/galata';
import { picture, setTheme, PATIENT } from './helpers';
import { codeOf, printed, runWhole, scrolledTo } from './notebook';

/**
 * As few rounds as a verdict needs; variants that they leave undecided are not measured again for
 * minutes, and what the cells before compiled is not compiled anew: `test_compare.py` does both.
 */
const ROUNDS_ALONE = `
from dataclasses import replace
from workbench.compare.measurement import Session
Session._undecided = lambda self: []
begun = Session.__init__
Session.__init__ = lambda self, model, shared, arms, plan, say: begun(
    self, model, shared, arms, replace(plan, rounds=5, fresh_cache=False), say
)
`;

const answers = [
  'attention cudnn does not exist on cpu',
  'one for each rank; this machine has room for',
  'Compile report of modes: 1 graph, no breaks',
  'Data-dependent branching',
  'if h.abs().max() > 1:',
  'steps, losses differ by at most',
  'under bf16',
  'Comparison of modes: modes',
  '99 % interval',
];

const [first = '', ...others] = codeOf('04_modes.ipynb');
const cells = [first + ROUNDS_ALONE, ...others];

function indexOf(start: string): number {
  const found = cells.findIndex((cell) => cell.startsWith(start));
  if (found < 0) throw new Error(`no cell of the notebook starts with ${start}`);
  return found;
}

test('the notebook about modes is live from top to bottom', async ({ page, tmpPath }) => {
  test.setTimeout(1_200_000);
  await runWhole(page, `${tmpPath}/04_modes.ipynb`, cells, { timeout: 1_080_000 });
  const said = await printed(page);
  for (const answer of answers) expect(said).toContain(answer);
  const apart = Number(/losses differ by at most (\S+) /.exec(said)?.[1]);
  expect(apart).toBeLessThanOrEqual(1e-6);

  for (const theme of ['Dark', 'Light']) {
    await setTheme(page, `JupyterLab ${theme}`);

    const panel = (await scrolledTo(page, indexOf('for modes in ("compile"'))).locator('.wb-panel');
    await expect(panel.getByRole('radiogroup', { name: 'Parallel' })).toBeVisible(PATIENT);
    await expect(panel).toContainText('baseline');
    await page.screenshot({ path: picture(`modes-notebook-panel-${theme}.png`) });

    const report = (await scrolledTo(page, indexOf('wb.compile_report'))).locator('.wv-compile');
    await expect(report).toContainText('4 recompiles', PATIENT);
    await page.screenshot({ path: picture(`modes-notebook-report-${theme}.png`) });

    const types = await scrolledTo(page, indexOf('half = '));
    await expect(types).toContainText('Types of half, step 1, under bf16');
    await page.screenshot({ path: picture(`modes-notebook-types-${theme}.png`) });

    const compared = (await scrolledTo(page, indexOf('wb.compare'))).locator('.wv-compare');
    await expect(compared.getByRole('grid', { name: 'Modes' }).locator('tbody tr')).toHaveCount(5);
    await page.screenshot({ path: picture(`modes-notebook-compared-${theme}.png`) });
  }
});
