import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import {
  execute,
  experimentCode,
  experimentKnown,
  layoutSaved,
  longExperimentCode,
  PATIENT,
  picture,
  reloadPage,
  runNotebook,
} from './helpers';

test.describe('Captures in tabs', () => {
  test('a graph opens, is found again, and comes back after a reload', async ({
    page,
    tmpPath,
  }) => {
    await runNotebook(page, `${tmpPath}/graphs.ipynb`, [experimentCode('looked-at')]);
    await experimentKnown(page);
    const saved = layoutSaved(page, 'workbench-capture');
    await execute(page, 'workbench:capture-graph');
    const tab = page.getByRole('tab', {
      name: /looked-at · step [\d,]+ · graph/,
    });
    await expect(tab).toBeVisible();
    await expect(page.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible();
    await page.screenshot({ path: picture('graph-tab.png') });

    // The same capture again activates its tab instead of opening another one.
    await execute(page, 'workbench:open-graph');
    await expect(tab).toHaveCount(1);

    await saved;
    await reloadPage(page);
    await expect(tab).toBeVisible();
    await tab.click();
    await expect(page.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible(
      PATIENT,
    );
  });

  test('two graphs are compared from the list of captures', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/compare.ipynb`, [experimentCode('compared')]);
    await experimentKnown(page);
    for (const step of [1, 2]) {
      await execute(page, 'workbench:capture-graph');
      const tab = page.getByRole('tab', {
        name: `compared · step ${step} · graph`,
      });
      await expect(tab).toBeVisible();
    }
    await execute(page, 'workbench:show-side-panel');
    const offer = page.getByRole('button', {
      name: 'Compare the graphs of steps 1 and 2',
    });
    await offer.hover();
    await page.screenshot({ path: picture('compare-offer.png') });
    await offer.click();
    const tab = page.getByRole('tab', {
      name: 'compared · 1 → 2 · diff',
    });
    await expect(tab).toBeVisible();
    await expect(page.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible();
    await expect(page.getByRole('button', { name: /^Same \d+/ })).toBeVisible();
    await page.screenshot({ path: picture('compare-tab.png') });

    // The diff is held beside the graphs: opened again, it is the same tab.
    await offer.click();
    await expect(page.getByRole('button', { name: /diff steps 1 → 2/ })).toHaveCount(1);
    await expect(tab).toHaveCount(1);
  });

  test('of two notebooks that train stay with their own kernel', async ({ page, tmpPath }) => {
    await execute(page, 'workbench:show-side-panel');
    const side = page.locator('#workbench-side-panel');
    const bar = page.locator('.jp-Workbench-document:visible .wv-bar');
    const tab = (name: string | RegExp) => page.getByRole('tab', { name });
    const held = () =>
      side
        .locator('[data-capture]')
        .evaluateAll((rows) => rows.map((row) => row.getAttribute('data-capture')));
    for (const name of ['left', 'right']) {
      await runNotebook(page, `${tmpPath}/${name}.ipynb`, [longExperimentCode(name)]);
      await expect(side.getByRole('option')).toContainText(name, PATIENT);
      await execute(page, 'workbench:toggle-training');
      // A run captures graph and memory of its first step by itself.
      await expect.poll(async () => (await held()).length, PATIENT).toBe(2);
      await execute(page, 'workbench:capture-graph');
      await expect(tab(new RegExp(`^${name} · step [\\d,]+ · graph`))).toHaveCount(1, PATIENT);
      await expect.poll(async () => (await held()).length, PATIENT).toBe(3);
    }

    const ofRight = await held();

    // With a capture of the one in front, everything is about the one that it came from.
    await tab(/^left · step/).click();
    await expect(side.getByRole('option')).toContainText('left');
    await execute(page, 'workbench:capture-graph');
    await expect(tab(/^left · step/)).toHaveCount(2);
    await expect(tab(/^right · step/)).toHaveCount(1);
    expect((await held()).filter((id) => ofRight.includes(id))).toEqual([]);
    await bar.getByRole('button', { name: 'Compare' }).click();
    await page.getByRole('menuitem', { name: /^Step 1 · / }).click();
    await expect(tab(/^left · [\d,]+ → [\d,]+ · diff/)).toBeVisible(PATIENT);
    await expect(bar.locator('..').locator('.wv-sides')).toContainText(/A.*B/);

    // The side panel's captures follow the tab in front; nothing was added to the other's.
    await tab(/^right · step/).click();
    await expect(side.getByRole('option')).toContainText('right');
    await expect.poll(held).toEqual(ofRight);
    await page.screenshot({ path: picture('two-notebooks.png') });

    // A kernel that goes takes nothing from the other.
    await execute(page, 'docmanager:open', { path: `${tmpPath}/right.ipynb` });
    const restarted = execute(page, 'notebook:restart-kernel');
    await page.getByRole('button', { name: 'Confirm Kernel Restart' }).click();
    await restarted;
    await tab(/^right · step/).click();
    await expect(bar).toContainText('kernel gone');
    await tab(/^left · [\d,]+ → /).click();
    await expect(bar).not.toContainText('kernel gone');
    await expect(page.locator('.jp-Workbench-status')).toContainText('training');
    await execute(page, 'workbench:toggle-training');
    await expect(page.locator('.jp-Workbench-status')).toContainText('paused');
  });

  test('memory opens beside it', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/memory.ipynb`, [experimentCode('looked-at')]);
    await experimentKnown(page);
    await execute(page, 'workbench:capture-memory');
    await expect(page.getByRole('tab', { name: /looked-at · step [\d,]+ · memory/ })).toBeVisible();
    await expect(page.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible();
    await page.screenshot({ path: picture('memory-tab.png') });
  });

  test('a saved record opens from the file browser without its kernel', async ({
    page,
    tmpPath,
  }) => {
    await runNotebook(page, `${tmpPath}/save.ipynb`, [
      experimentCode('saved'),
      'wb.graph(exp).save("step.graph.safetensors")',
    ]);
    await execute(page, 'kernelmenu:shutdown').catch(() => undefined);
    await execute(page, 'docmanager:open', {
      path: `${tmpPath}/step.graph.safetensors`,
    });
    await expect(page.getByRole('tab', { name: 'step.graph.safetensors' })).toBeVisible();
    await expect(page.locator('.jp-Workbench-document canvas:visible').first()).toBeVisible();
  });

  test('a damaged record says what is wrong with it', async ({ page, tmpPath }) => {
    await page.contents.uploadContent('not a record', 'text', `${tmpPath}/bad.graph.safetensors`);
    await execute(page, 'docmanager:open', {
      path: `${tmpPath}/bad.graph.safetensors`,
    });
    await expect(page.getByRole('alert')).toContainText('not a Workbench record');
  });

  test('a view leads to the line of its cell', async ({ page, tmpPath }) => {
    await runNotebook(page, `${tmpPath}/lines.ipynb`, [
      'first = 1',
      'second = 2\nthird = 3',
      'last = 4',
    ]);
    await page.evaluate(() => {
      const source = {
        filename: '<cell>',
        cell: 2,
        line: 2,
        text: 'third = 3',
      };
      const event = new CustomEvent('workbench:open', {
        bubbles: true,
        composed: true,
        cancelable: true,
        detail: { kind: 'goto', source },
      });
      const taken = !document.querySelector('.jp-Notebook')?.dispatchEvent(event);
      if (!taken) {
        throw new Error('no handler took the event');
      }
    });
    const active = page.locator('.jp-Notebook .jp-Cell.jp-mod-active');
    await expect(active).toContainText('third = 3');
    await expect(active.locator('.cm-content')).toBeFocused();
    const line = await page.evaluate(() => {
      const panel = window.jupyterapp.shell.currentWidget as unknown as {
        content: {
          activeCell: { editor: { getCursorPosition(): { line: number } } };
        };
      };
      return panel.content.activeCell.editor.getCursorPosition().line;
    });
    expect(line).toBe(1);
  });

  test('a view leads to the line of a file, and to a cell of a closed notebook', async ({
    page,
    tmpPath,
  }) => {
    const lines = Array.from({ length: 90 }, (_, at) => `line_${at + 1} = 0`);
    const file = `${tmpPath}/model.py`;
    await page.contents.uploadContent(lines.join('\n'), 'text', file);
    const notebook = `${tmpPath}/lines.ipynb`;
    await runNotebook(page, notebook, ['first = 1', 'second = 2\nthird = 3']);
    await page.notebook.save();
    await page.notebook.close();
    await lead(page, notebook, {
      filename: file,
      line: 77,
      text: 'line_77 = 0',
    });
    await expect(page.getByRole('tab', { name: 'model.py' })).toBeVisible();
    await expect(page.getByRole('button', { name: 'Ln 77, Col 1' })).toBeVisible();
    await lead(page, notebook, {
      filename: '<cell>',
      cell: 2,
      line: 2,
      text: 'third = 3',
    });
    await expect(page.locator('.jp-Notebook .jp-Cell.jp-mod-active')).toContainText('third = 3');
    await expect(page.getByRole('button', { name: 'Ln 2, Col 1' })).toBeVisible();
    await expect(page.locator('.Toastify__toast--error')).toHaveCount(0);
  });
});

/** Requests a line as a view does that belongs to a notebook. */
async function lead(page: IJupyterLabPageFixture, notebook: string, source: object): Promise<void> {
  await page.evaluate(
    ([path, wanted]) => {
      const view = document.createElement('div');
      view.setAttribute('data-workbench-notebook', path as string);
      document.body.append(view);
      const detail = { kind: 'goto', source: wanted };
      const options = { bubbles: true, composed: true, cancelable: true };
      view.dispatchEvent(new CustomEvent('workbench:open', { ...options, detail }));
      view.remove();
    },
    [notebook, source] as const,
  );
}
