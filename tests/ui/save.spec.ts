import { expect, test } from '@jupyterlab/galata';
import { captured, drawing } from './graph-view';
import { execute, picture } from './helpers';

test('a capture is saved beside its notebook, and opens without its kernel', async ({
  page,
  tmpPath,
}) => {
  const view = await captured(page, `${tmpPath}/save.ipynb`);
  const label = (await page.locator('.jp-mod-current[role=tab]').textContent()) ?? '';
  await drawing(view).click({ button: 'right', position: { x: 60, y: 60 } });
  await page.getByRole('menuitem', { name: 'Save Capture as a File' }).click();
  const name = 'asked-step-1.graph.safetensors';
  await expect(page.locator('.jp-toast, [role=alert]').filter({ hasText: name })).toBeVisible();
  await page.screenshot({ path: picture('graph-saved.png') });

  // A second file never takes the place of the first.
  await execute(page, 'workbench:save-capture');
  const second = name.replace('.graph', '-2.graph');
  await expect.poll(() => page.contents.fileExists(`${tmpPath}/${second}`)).toBe(true);

  await page.contents.deleteFile(`${tmpPath}/${second}`);
  await execute(page, 'kernelmenu:shutdown').catch(() => undefined);
  await execute(page, 'docmanager:open', { path: `${tmpPath}/${name}` });
  await expect(page.getByRole('tab', { name })).toBeVisible();
  const file = page.locator('.jp-Workbench-document:visible');
  await expect(file.getByRole('treeitem').filter({ hasText: 'head' })).toBeVisible();
  expect(label).toMatch(/asked · step 1 · graph/);
});
