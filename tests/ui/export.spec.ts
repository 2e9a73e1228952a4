import { writeFileSync } from 'node:fs';
import { expect, test, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { button, captured, drawing } from './graph-view';
import { execute, layoutSaved, picture, reloadPage, setTheme, PATIENT } from './helpers';

/** What every entry of the Export menu writes, and how such a file begins. */
const FILES: readonly [entry: string, ending: string, begins: RegExp][] = [
  ['Picture of What Is Shown (SVG)', 'view.svg', /^<\?xml[^]*<svg /],
  ['Picture of What Is Shown (PNG)', 'view.png', /^\x89PNG\r\n\x1a\n/],
  ['Whole Graph (SVG)', 'graph.svg', /^<svg /],
  ['Whole Graph (PNG)', 'graph.png', /^\x89PNG\r\n\x1a\n/],
  ['Whole Graph (PDF)', 'graph.pdf', /^%PDF-/],
  ['Graphviz (DOT)', 'graph.dot', /^digraph /],
  ['Model Explorer (JSON)', 'graph.json', /^\{"label"|^\{/],
  ['Record (safetensors)', 'graph.safetensors', /^.{8}\{/s],
];

test.describe('The bar of a capture', () => {
  test('goes from capture to capture in one tab, compares and swaps', async ({ page, tmpPath }) => {
    const view = await captured(page, `${tmpPath}/menus.ipynb`);
    const compare = button(view, 'Compare');
    await expect(compare).toHaveAttribute('aria-disabled', 'true');
    await expect(compare).toHaveAttribute('title', /no other graph to compare with/);

    await test.step('the next step comes in place, looked at as the one before', async () => {
      await view.getByRole('button', { name: 'Gradient norm' }).click();
      await drawing(view).focus();
      await menu(page, view, 'Capture');
      await page.screenshot({ path: picture('capture-menu-light.png') });
      await page.getByRole('menuitem', { name: 'Capture Next Step' }).click();
      await expect(tab(page, 'asked · step 2 · graph')).toBeVisible(PATIENT);
      await expect(page.getByRole('tab', { name: /asked · .* graph/ })).toHaveCount(1);
      const pressed = view.getByRole('button', { name: 'Gradient norm' });
      await expect(pressed).toHaveAttribute('aria-pressed', 'true');
    });

    await test.step('by keyboard to the older one and back, but not while a person types', async () => {
      await drawing(view).focus();
      await page.keyboard.press('[');
      await expect(tab(page, 'asked · step 1 · graph')).toBeVisible(PATIENT);
      await page.keyboard.press('/');
      await page.keyboard.type(']c');
      await expect(view.getByRole('searchbox')).toHaveValue(']c');
      await page.keyboard.press('Escape');
      await expect(tab(page, 'asked · step 1 · graph')).toBeVisible();
      await page.keyboard.press(']');
      await expect(tab(page, 'asked · step 2 · graph')).toBeVisible(PATIENT);
    });

    await test.step('the menu names the captures and marks the one that is shown', async () => {
      await menu(page, view, 'Capture');
      const shown = page.locator('.lm-Menu-item.lm-mod-toggled');
      await expect(shown).toContainText('Step 2');
      await page.keyboard.press('Escape');
      await expect(button(view, 'Capture')).toBeFocused();
      await setTheme(page, 'JupyterLab Dark');
      await menu(page, view, 'Capture');
      await page.screenshot({ path: picture('capture-menu-dark.png') });
      await page.keyboard.press('Escape');
      await setTheme(page, 'JupyterLab Light');
    });

    await test.step('another graph to compare with, and the other way round', async () => {
      await menu(page, view, 'Compare');
      await page.screenshot({ path: picture('compare-menu-light.png') });
      await page.getByRole('menuitem', { name: /^Step 1 · / }).click();
      await expect(tab(page, 'asked · 1 → 2 · diff')).toBeVisible(PATIENT);
      const diff = page.locator('.jp-Workbench-document:visible');
      const sides = diff.locator('.wv-sides');
      await expect(sides).toContainText(/A.*step 1.*B.*step 2/, PATIENT);
      await page.screenshot({ path: picture('swap-light.png') });
      await drawing(diff).focus();
      await page.keyboard.press('x');
      await expect(tab(page, 'asked · 2 → 1 · diff')).toBeVisible(PATIENT);
      await expect(sides).toContainText(/A.*step 2.*B.*step 1/);
      await button(diff, 'Swap A and B').click();
      await expect(tab(page, 'asked · 1 → 2 · diff')).toBeVisible(PATIENT);
      await expect(page.getByRole('tab', { name: /asked · .* diff/ })).toHaveCount(1);
      await menu(page, diff, 'Export');
      await page.getByRole('menuitem', { name: 'Picture of What Is Shown (SVG)' }).click();
      const path = `${tmpPath}/asked-1-2.view.svg`;
      await expect.poll(() => page.contents.fileExists(path), PATIENT).toBe(true);
      expect(await read(page, path)).toMatch(/>removed: only in A</);
    });

    await test.step('a notebook with another name keeps its captures', async () => {
      const [from, to] = ['menus', 'a new name'].map((name) => `${tmpPath}/${name}.ipynb`);
      await page.evaluate(
        (path) => window.jupyterapp.serviceManager.contents.rename(path[0]!, path[1]!),
        [from, to],
      );
      await tab(page, 'asked · step 2 · graph').click();
      await expect(button(view, 'Capture')).not.toHaveAttribute('aria-disabled', 'true');
      const renamed = page.locator(`[data-workbench-notebook="${to}"]:visible`);
      await expect(renamed.getByRole('application')).toBeVisible();
    });

    await test.step('a reload of the page brings back what was shown last', async () => {
      await tab(page, 'asked · step 2 · graph').click();
      await drawing(view).focus();
      const saved = layoutSaved(page, '"label":"step 1"');
      await page.keyboard.press('[');
      await expect(tab(page, 'asked · step 1 · graph')).toBeVisible(PATIENT);
      await saved;
      await reloadPage(page);
      await expect(tab(page, 'asked · step 1 · graph')).toBeVisible(PATIENT);
      await expect(tab(page, 'asked · step 2 · graph')).toHaveCount(0);
    });
  });

  test('saves every form that its menu offers', async ({ page, tmpPath }) => {
    const view = await captured(page, `${tmpPath}/export.ipynb`);
    await menu(page, view, 'Export');
    await page.screenshot({ path: picture('export-menu-light.png') });
    await page.keyboard.press('Escape');

    await view.getByRole('button', { name: 'Gradient norm' }).click();
    const made = new Map<string, string>();
    for (const [entry, ending, begins] of FILES)
      await test.step(entry, async () => {
        await menu(page, view, 'Export');
        await page.getByRole('menuitem', { name: entry, exact: true }).click();
        const path = `${tmpPath}/asked-step-1.${ending}`;
        await expect.poll(() => page.contents.fileExists(path), PATIENT).toBe(true);
        const content = await read(page, path);
        expect(content).toMatch(begins);
        made.set(ending, content);
      });

    await test.step('the pictures are of the size of what is shown, and say its names', async () => {
      const size = await drawing(view).evaluate((canvas) => [
        canvas.clientWidth,
        canvas.clientHeight,
      ]);
      expect(pngSize(made.get('view.png') ?? '')).toEqual(size.map((one) => 2 * one));
      const svg = made.get('view.svg') ?? '';
      expect(svg).toContain(`width="${size[0]}" height="${size[1]}"`);
      keep('shown.svg', svg);
      keep('shown.png', made.get('view.png') ?? '');
      const texts = await page.evaluate((text) => {
        const parsed = new DOMParser().parseFromString(text, 'image/svg+xml');
        const error = parsed.querySelector('parsererror');
        return error ? [] : [...parsed.querySelectorAll('text')].map((one) => one.textContent);
      }, utf8(svg));
      for (const text of ['stem', 'cross_entropy', 'Norm of the gradient of the output'])
        expect(texts).toContain(text);
      // The hatch of what has no gradient is in the picture itself.
      expect(svg).toMatch(/<pattern id="pattern1".*href="data:image\/png;base64,/);
    });

    await test.step('the JSON is a collection of graphs', () => {
      const collection = JSON.parse(made.get('graph.json') ?? '') as {
        graphs: unknown[];
      };
      expect(collection.graphs.length).toBeGreaterThan(0);
    });

    await test.step('what was saved opens from its message', async () => {
      const toast = page.locator('.Toastify__toast', { hasText: 'graph.dot' });
      await toast.getByRole('button', { name: 'Open' }).click();
      await expect(tab(page, 'asked-step-1.graph.dot')).toBeVisible(PATIENT);
      await tab(page, 'asked · step 1 · graph').click();
    });

    await test.step('without its kernel a tab keeps what the browser can make', async () => {
      await page.kernel.shutdownAll();
      const capture = button(view, 'Capture');
      await expect(capture).toHaveAttribute('aria-disabled', 'true', PATIENT);
      await expect(capture).toHaveAttribute('title', /was restarted or shut down/);
      await menu(page, view, 'Export');
      const entry = (name: string): Locator => page.locator('.lm-Menu-item', { hasText: name });
      await expect(entry('Graphviz (DOT)')).toHaveClass(/lm-mod-disabled/);
      await expect(entry('Record (safetensors)')).not.toHaveClass(/lm-mod-disabled/);
      await page.keyboard.press('Escape');
    });

    await test.step('a file leads to what it needs no kernel for', async () => {
      const path = `${tmpPath}/asked-step-1.graph.safetensors`;
      await execute(page, 'docmanager:open', { path });
      const file = page.locator('.jp-Workbench-document:visible');
      await expect(drawing(file)).toBeVisible(PATIENT);
      await setTheme(page, 'JupyterLab Dark');
      await menu(page, file, 'Export');
      await page.screenshot({ path: picture('export-file-dark.png') });
      const pdf = page.locator('.lm-Menu-item', {
        hasText: 'Whole Graph (PDF)',
      });
      await expect(pdf).toHaveClass(/lm-mod-disabled/);
      await expect(pdf).toHaveAttribute(
        'title',
        /wb\.graph\("asked-step-1\.graph\.safetensors"\)\.save\(".*\.graph\.pdf"\)/,
      );
      await page.getByRole('menuitem', { name: 'Picture of What Is Shown (SVG)' }).click();
      const second = `${tmpPath}/asked-step-1-2.view.svg`;
      await expect.poll(() => page.contents.fileExists(second), PATIENT).toBe(true);
    });
  });

  test('of a memory recording chooses and exports, too', async ({ page, tmpPath }) => {
    await captured(page, `${tmpPath}/memory.ipynb`);
    await execute(page, 'workbench:capture-memory');
    await expect(page.getByRole('tab', { name: /asked · .* memory/ })).toBeVisible(PATIENT);
    const view = page.locator('.jp-Workbench-document:visible');
    await expect(button(view, 'Capture')).toBeVisible(PATIENT);
    await menu(page, view, 'Export');
    await page.screenshot({ path: picture('export-memory-light.png') });
    await page.getByRole('menuitem', { name: 'Chart (PNG)' }).click();
    const found = async (): Promise<string> => {
      const listed = await page.evaluate(
        async (folder) => (await window.jupyterapp.serviceManager.contents.get(folder)).content,
        tmpPath,
      );
      return (listed as { name: string }[]).map(({ name }) => name).join(' ');
    };
    await expect.poll(found, PATIENT).toMatch(/asked-step-\d+\.memory\.png/);
  });
});

/** Opens the menu of one of the bar's buttons. */
async function menu(page: IJupyterLabPageFixture, view: Locator, name: string): Promise<void> {
  await button(view, name).click();
  await expect(page.locator('.lm-Menu')).toBeVisible();
}

function tab(page: IJupyterLabPageFixture, name: string): Locator {
  return page.getByRole('tab', { name, exact: true });
}

/** The bytes of a file, one letter each. */
function read(page: IJupyterLabPageFixture, path: string): Promise<string> {
  return page.evaluate(async (wanted) => {
    const { contents } = window.jupyterapp.serviceManager;
    const options = { type: 'file', format: 'base64', content: true } as const;
    return atob(((await contents.get(wanted, options)).content as string).replace(/\s/g, ''));
  }, path);
}

/** Keeps what was made beside the screenshots, to be looked at. */
function keep(name: string, bytes: string): void {
  writeFileSync(picture(name), Buffer.from(bytes, 'latin1'));
}

function utf8(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('utf8');
}

/** Width and height, which a PNG says at its beginning. */
function pngSize(bytes: string): number[] {
  const data = Buffer.from(bytes, 'latin1');
  return [data.readUInt32BE(16), data.readUInt32BE(20)];
}
