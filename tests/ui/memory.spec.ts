import { readFileSync } from 'node:fs';
import { expect, type IJupyterLabPageFixture, test } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import path from 'node:path';
import { execute, picture, python, setTheme } from './helpers';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';

const PATIENT = { timeout: 20_000 };
const checkout = path.resolve(__dirname, '../..');

/** A snapshot as torch writes it: two streams, a pending free, a release and a refusal. */
const WRITE = `
import pickle, sys
from workbench.memory import memory

MIB, BASE = 1 << 20, 0x7F0000000000
trace, time = [], 0

def say(action, at, size, stream=0):
    global time
    time += 1000
    where = {"device_free": at} if action == "oom" else {"addr": BASE + at}
    frames = [{"filename": "/home/ana/train.py", "line": 40 + size % 7, "name": "step"}]
    trace.append({"action": action, "size": size, "stream": stream, "time_us": time,
                  "frames": frames, **where})

for segment in range(12):
    say("segment_alloc", segment * 64 * MIB, 20 * MIB, 7 if segment > 9 else 0)
    for block in range(3):
        at = segment * 64 * MIB + block * 6 * MIB
        say("alloc", at, 6 * MIB - 512 * segment - 100, 7 if segment > 9 else 0)
for segment in range(0, 8, 2):
    at = segment * 64 * MIB + 6 * MIB
    say("free_requested", at, 6 * MIB - 512 * segment - 100)
    if segment != 4:
        say("free_completed", at, 6 * MIB - 512 * segment - 100)
say("oom", 30 * MIB, 90 * MIB)
say("segment_free", 900 * 64 * MIB, 20 * MIB)
segments = []
for segment in range(12):
    stream = 7 if segment > 9 else 0
    blocks = []
    for block in range(3):
        freed = block == 1 and segment in (0, 2, 6)
        waits = block == 1 and segment == 4
        state = "inactive" if freed else "active_pending_free" if waits else "active_allocated"
        blocks.append({"address": BASE + segment * 64 * MIB + block * 6 * MIB, "size": 6 * MIB,
                       "requested_size": 6 * MIB - 512 * segment - 100, "state": state})
    blocks.append({"address": BASE + segment * 64 * MIB + 18 * MIB, "size": 2 * MIB,
                   "requested_size": 0, "state": "inactive"})
    segments.append({"device": 0, "address": BASE + segment * 64 * MIB, "total_size": 20 * MIB,
                     "stream": stream, "segment_type": "large", "segment_pool_id": (0, 0),
                     "is_expandable": False, "blocks": blocks})
with open(sys.argv[1] + "/snapshot.pickle", "wb") as file:
    pickle.dump({"segments": segments, "device_traces": [trace]}, file, protocol=4)
memory(sys.argv[1] + "/snapshot.pickle").save(sys.argv[1] + "/snapshot.memory.safetensors")
`;

/** Opens the record of the snapshot in a tab; gives the view. */
async function opened(page: IJupyterLabPageFixture, folder: string): Promise<Locator> {
  const here = mkdtempSync(path.join(tmpdir(), 'workbench-snapshot-'));
  try {
    execFileSync(python, ['-c', WRITE, here], { cwd: checkout });
    const content = readFileSync(path.join(here, 'snapshot.memory.safetensors'));
    const target = `${folder}/snapshot.memory.safetensors`;
    await page.contents.uploadContent(content.toString('base64'), 'base64', target);
    await execute(page, 'docmanager:open', { path: target });
  } finally {
    rmSync(here, { recursive: true });
  }
  const view = page.locator('.jp-Workbench-document .wv-memory');
  await expect(view.locator('canvas.wv-map')).toBeVisible(PATIENT);
  return view;
}

/** Colours in a rectangle of a canvas, to tell a drawing from nothing. */
async function colours(canvas: Locator): Promise<number> {
  return canvas.evaluate((node) => {
    const drawing = node as HTMLCanvasElement;
    const data = drawing.getContext('2d')?.getImageData(0, 0, drawing.width, drawing.height).data;
    return new Set(new Uint32Array(data?.buffer ?? new ArrayBuffer(0))).size;
  });
}

test.describe('The memory of a GPU', () => {
  test('is scrubbed, searched and read block by block', async ({ page, tmpPath }) => {
    const view = await opened(page, tmpPath);
    await expect(view.locator('.wv-split')).toContainText('exact');
    await expect.poll(() => colours(view.locator('canvas.wv-map')), PATIENT).toBeGreaterThan(5);
    await page.screenshot({ path: picture('memory-map-light.png') });

    const chart = view.locator('canvas.wv-timeline');
    await chart.click({ position: { x: 300, y: 90 } });
    const before = await view.locator('.wv-sum').textContent();
    await page.keyboard.press('Shift+ArrowRight');
    await expect(view.locator('.wv-sum')).not.toHaveText(before ?? '');
    await expect(view.locator('.wv-sum')).toContainText('exact');

    await page.keyboard.press('o');
    await view.locator('canvas.wv-map').focus();
    await page.keyboard.press('ArrowRight');
    const inspector = view.locator('.wv-inspector');
    await expect(inspector).toContainText(/Large pool › 20\.0 MiB segment › block \d of \d/);
    await expect(inspector).toContainText('train.py:');
    await expect(inspector).toContainText(/stay(s)? pinned/);
    await page.screenshot({ path: picture('memory-block-light.png') });

    const found = await view.locator('canvas.wv-lens').boundingBox();
    await page.mouse.click((found?.x ?? 0) + 650, (found?.y ?? 0) + 30);
    await expect(inspector.locator('h2')).toContainText('train.py:');

    await view.locator('input[type=search]').fill('train.py:4 >5.99mib');
    await view.getByRole('button', { name: 'Holders', exact: true }).click();
    await expect(view.locator('.wv-part').filter({ hasText: 'Who holds' })).toContainText(
      /^Who.* \d+ blocks?,/,
    );
    await page.keyboard.press('Escape');
  });

  test('is a table, too, and dark', async ({ page, tmpPath }) => {
    await setTheme(page, 'JupyterLab Dark');
    const view = await opened(page, tmpPath);
    await expect.poll(() => colours(view.locator('canvas.wv-map')), PATIENT).toBeGreaterThan(5);
    await page.screenshot({ path: picture('memory-map-dark.png') });
    await view.locator('canvas.wv-timeline').focus();
    await page.keyboard.press('t');
    const sizes = view.getByRole('table').filter({ hasText: 'Segment size' });
    await expect(sizes.getByRole('row', { name: /^20 MiB 13/ })).toBeVisible();
    await expect(sizes.getByRole('row', { name: /^All 13/ })).toBeVisible();
    await sizes.getByRole('button', { name: 'Free, pinned' }).click();
    await expect(sizes.getByRole('columnheader', { name: 'Free, pinned' })).toHaveAttribute(
      'aria-sort',
      'descending',
    );
    await page.screenshot({ path: picture('memory-table-dark.png') });
  });
});
