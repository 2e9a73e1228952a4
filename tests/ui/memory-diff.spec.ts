import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import {
  execute,
  experimentCode,
  experimentKnown,
  layoutSaved,
  picture,
  reloadPage,
  runNotebook,
  setTheme,
  PATIENT,
} from './helpers';
import { madeFile, put } from './snapshot-files';

/** A step of a small network, recorded; the second time with a larger batch and a wider layer. */
const RECORD = `
import torch
from torch import nn
from workbench.memory import memory

def step(batch, width):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 4))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(batch, 64), torch.randint(0, 4, (batch,))
    with memory() as found:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return found
`;

/** A snapshot as torch writes it, of so many blocks of 6 MiB. */
const SNAPSHOT = `
import pickle
MIB, BASE = 1 << 20, 0x7F0000000000

def snapshot(path, count):
    trace, segments = [], []
    for row in range(count):
        for action, size in (("segment_alloc", 20 * MIB), ("alloc", 6 * MIB - 100)):
            frames = [{"filename": "/home/ana/train.py", "line": 40 + row % 3, "name": "step"}]
            trace.append({"action": action, "addr": BASE + row * 64 * MIB, "size": size,
                          "stream": 0, "time_us": 1000 * len(trace), "frames": frames})
        at = BASE + row * 64 * MIB
        blocks = [
            {"address": at, "size": 6 * MIB, "requested_size": 6 * MIB - 100,
             "state": "active_allocated"},
            {"address": at + 6 * MIB, "size": 14 * MIB, "requested_size": 0, "state": "inactive"},
        ]
        segments.append({"device": 0, "address": at, "total_size": 20 * MIB, "stream": 0,
                         "segment_type": "large", "segment_pool_id": (0, 0),
                         "is_expandable": False, "blocks": blocks})
    with open(path, "wb") as file:
        pickle.dump({"segments": segments, "device_traces": [trace]}, file, protocol=4)
`;

test.describe('The diff of two memory recordings', () => {
  test('is drawn in the output of a cell', async ({ page, tmpPath }) => {
    const cells = [RECORD, 'step(256, 128).diff(step(1024, 256))'];
    await runNotebook(page, `${tmpPath}/diff.ipynb`, cells);
    const view = page.locator('.jp-OutputArea .wv-memory-diff');
    await expect(view.locator('canvas.wv-timeline')).toHaveCount(2, PATIENT);
    await expect(view.locator('.wv-peak')).toContainText(/B's peak is .* higher/);
    await view.scrollIntoViewIfNeeded();
    await expect.poll(() => colours(view.locator('canvas.wv-timeline').first())).toBeGreaterThan(3);
    await page.screenshot({ path: picture('memory-diff-cell.png') });

    await test.step('a line of a cell leads to it', async () => {
      await button(view, 'Line').click();
      await rows(view).filter({ hasText: 'of a cell: nn.functional' }).click();
      await view.locator('.wv-lines .wv-link').first().click();
      const active = page.locator('.jp-Notebook .jp-Cell.jp-mod-active');
      await expect(active).toContainText('cross_entropy');
    });
  });

  test('of two captures opens from the list, and comes back after a reload', async ({
    page,
    tmpPath,
  }) => {
    await runNotebook(page, `${tmpPath}/captured.ipynb`, [experimentCode('compared')]);
    await experimentKnown(page);
    for (const step of [1, 2]) {
      await execute(page, 'workbench:capture-memory');
      const tab = page.getByRole('tab', { name: `compared · step ${step} · memory` });
      await expect(tab).toBeVisible(PATIENT);
    }
    await execute(page, 'workbench:show-side-panel');
    const saved = layoutSaved(page, 'workbench-memory-diff');
    const offer = page.getByRole('button', { name: 'Compare the memory of steps 1 and 2' });
    await offer.hover();
    await offer.click();
    const view = page.locator('.jp-Workbench-comparison .wv-memory-diff');
    await expect(view.locator('.wv-head b').first()).toHaveText('compared · step 1');
    await expect(view.locator('.wv-peak')).toContainText(/peak/);
    await page.screenshot({ path: picture('memory-diff-captures.png') });

    // Opened again, it is the same tab.
    await offer.click();
    await expect(page.getByRole('tab', { name: /memory diff/ })).toHaveCount(1);

    // The tab of a capture offers the others of its kind, and files.
    await page.getByRole('tab', { name: 'compared · step 2 · memory' }).click();
    const bar = page.locator('.jp-Workbench-document:visible .wv-bar');
    await bar.getByRole('button', { name: 'Compare' }).click();
    await expect(page.getByRole('menuitem', { name: 'A File…' })).toBeVisible();
    await page.getByRole('menuitem', { name: /^Step 1 · / }).click();
    await expect(page.getByRole('tab', { name: /memory diff/ })).toHaveCount(1);

    await saved;
    await reloadPage(page);
    await page.getByRole('tab', { name: /memory diff/ }).click();
    await expect(view.locator('.wv-head b').nth(1)).toHaveText('compared · step 2', PATIENT);
  });

  test('of two files opens from the file browser', async ({ page, tmpPath }) => {
    await upload(page, tmpPath);
    await execute(page, 'filebrowser:go-to-path', { path: tmpPath });
    const item = (name: string) => page.locator('.jp-DirListing-item', { hasText: name });
    await item('a.memory.safetensors').click();
    await item('b.memory.safetensors').click({ modifiers: ['ControlOrMeta'] });
    await item('b.memory.safetensors').click({ button: 'right' });
    await page.screenshot({ path: picture('memory-diff-menu.png') });
    await page.getByRole('menuitem', { name: 'Compare Memory' }).click();
    const view = page.locator('.jp-Workbench-comparison .wv-memory-diff');
    const head = view.locator('.wv-head b');
    await expect(head).toHaveText(['a.memory.safetensors', 'b.memory.safetensors'], PATIENT);
    await expect.poll(() => colours(view.locator('canvas.wv-timeline').first())).toBeGreaterThan(3);
    await page.screenshot({ path: picture('memory-diff-light.png') });

    await test.step('lights a group in both, by keyboard', async () => {
      const drawn = () => pixels(view.locator('canvas.wv-timeline').nth(1));
      const before = await drawn();
      await rows(view).first().focus();
      await page.keyboard.press('2');
      await expect(button(view, 'Module')).toHaveAttribute('aria-pressed', 'true');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await expect(view.locator('.wv-diffs tr[aria-selected=true]')).toHaveCount(1);
      await expect(view.locator('.wv-inspector')).toContainText('lit in both timelines');
      await expect.poll(drawn).not.toEqual(before);
      await page.screenshot({ path: picture('memory-diff-lit.png') });
      await page.keyboard.press('Escape');
      await expect(view.locator('.wv-diffs tr[aria-selected=true]')).toHaveCount(0);
    });

    await test.step('finds by name, and reads it the other way round', async () => {
      await page.keyboard.press('/');
      await page.keyboard.type('known');
      await expect(rows(view)).toHaveCount(1);
      await expect(view.locator('tfoot')).toContainText('Of those listed');
      await page.keyboard.press('Escape');
      await page.keyboard.press('x');
      await expect(head).toHaveText(['b.memory.safetensors', 'a.memory.safetensors']);
      await expect(view.locator('.wv-peak')).toContainText(/B's peak is .* lower/);
    });

    await test.step('has the timelines as numbers, and one cursor through both', async () => {
      await page.keyboard.press('t');
      await expect(view.locator('.wv-phases tr', { hasText: 'backward' })).toBeVisible();
      await page.keyboard.press('t');
      await view.locator('canvas.wv-timeline').first().focus();
      await page.keyboard.press('End');
      await expect(view.locator('.wv-sr')).toHaveText(/^A optimizer .*; B optimizer/);
    });

    await button(view, 'Save as CSV').click();
    await expect(page.locator('.Toastify__toast')).toContainText('memory-diff.csv');
    const table = await page.contents.getContentMetadata(`${tmpPath}/b-a.memory-diff.csv`, 'file');
    expect(table?.size).toBeGreaterThan(500);

    await setTheme(page, 'JupyterLab Dark High Contrast');
    await page.screenshot({ path: picture('memory-diff-contrast.png') });
    await setTheme(page, 'JupyterLab Dark');
    await expect(view).toHaveAttribute('data-wb-theme', 'dark');
    await page.screenshot({ path: picture('memory-diff-dark.png') });
  });

  test('of two snapshots opens from a file’s tab, and says when nothing differs', async ({
    page,
    tmpPath,
  }) => {
    await upload(page, tmpPath);
    await execute(page, 'filebrowser:go-to-path', { path: tmpPath });
    await execute(page, 'docmanager:open', { path: `${tmpPath}/snapshot_a.pickle` });
    await expect(page.locator('.wv-memory canvas.wv-map')).toBeVisible(PATIENT);
    await page.getByRole('button', { name: 'Compare with…' }).click();
    const dialog = page.locator('.jp-Dialog');
    await expect(dialog.locator('.jp-DirListing-item')).not.toHaveCount(0);
    await page.screenshot({ path: picture('memory-diff-choose.png') });
    await dialog.locator('.jp-DirListing-item', { hasText: 'snapshot_b.pickle' }).click();
    await dialog.getByRole('button', { name: /Open|Select/ }).click();
    const view = page.locator('.jp-Workbench-comparison .wv-memory-diff');
    await expect(view.locator('.wv-peak')).toContainText("B's peak is 12.0 MiB higher", PATIENT);
    await page.screenshot({ path: picture('memory-diff-snapshots.png') });

    const twice = [`${tmpPath}/snapshot_a.pickle`, `${tmpPath}/snapshot_a.pickle`];
    await execute(page, 'workbench:compare-memory-files', { paths: twice });
    await expect(view.locator('.wv-equal').locator('visible=true')).toContainText(
      'Nothing differs',
      PATIENT,
    );

    const damaged = [`${tmpPath}/snapshot_a.pickle`, `${tmpPath}/absent.pickle`];
    await execute(page, 'workbench:compare-memory-files', { paths: damaged });
    const notice = page.locator('.jp-Workbench-comparison:visible .jp-Workbench-notice');
    await expect(notice).toContainText('absent.pickle', PATIENT);
    await expect(notice.getByRole('button', { name: 'Try again' })).toBeVisible();
  });
});

const WRITE = [
  'import sys',
  RECORD,
  SNAPSHOT,
  'step(256, 128).save(sys.argv[1] + "/a.memory.safetensors")',
  'step(1024, 256).save(sys.argv[1] + "/b.memory.safetensors")',
  'snapshot(sys.argv[1] + "/snapshot_a.pickle", 4)',
  'snapshot(sys.argv[1] + "/snapshot_b.pickle", 6)',
].join('\n');

/** Two records and two snapshots, made by torch here and put into a folder of the server. */
async function upload(page: IJupyterLabPageFixture, folder: string): Promise<void> {
  const records = ['a.memory.safetensors', 'b.memory.safetensors'];
  for (const name of [...records, 'snapshot_a.pickle', 'snapshot_b.pickle'])
    await put(page, madeFile(name, WRITE), `${folder}/${name}`);
}

function rows(view: Locator): Locator {
  return view.locator('.wv-diffs tbody tr');
}

function button(view: Locator, name: string): Locator {
  return view.getByRole('button', { name: new RegExp(`^${name}`) });
}

/** Pixels of a canvas by colour, to distinguish a drawing from nothing, and one drawing from another. */
async function pixels(canvas: Locator): Promise<[string, number][]> {
  return canvas.evaluate((node) => {
    const drawing = node as HTMLCanvasElement;
    const { width, height } = drawing;
    const data = drawing.getContext('2d')?.getImageData(0, 0, width, height).data ?? [];
    const found = new Map<string, number>();
    for (let at = 0; at < data.length; at += 4 * 37) {
      const colour = [data[at], data[at + 1], data[at + 2]].join();
      found.set(colour, (found.get(colour) ?? 0) + 1);
    }
    return [...found];
  });
}

async function colours(canvas: Locator): Promise<number> {
  return (await pixels(canvas)).length;
}
