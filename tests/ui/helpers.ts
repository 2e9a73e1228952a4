import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator, Page } from '@playwright/test';

const checkout = path.resolve(__dirname, '../..');
const venv = path.join(checkout, '.venv/bin/python');
export const python = existsSync(venv) ? venv : 'python3';

/** What a slow machine may need for what takes a second on a free one. */
export const PATIENT = { timeout: 180_000 };
/** A first step under torch.compile runs a C++ compiler for every kind of block. */
export const COMPILING = { timeout: 600_000 };

/** Where a screenshot is kept. */
export function picture(name: string): string {
  const folder = path.join(checkout, 'artifacts/ui');
  mkdirSync(folder, { recursive: true });
  return path.join(folder, name);
}

/** Switches JupyterLab's theme and waits until the page wears it. */
export async function setTheme(page: IJupyterLabPageFixture, theme: string): Promise<void> {
  await page.theme.setTheme(theme);
}

/** Takes a picture of what stands there, in either theme; the light one is on afterwards. */
export async function pictures(page: IJupyterLabPageFixture, name: string): Promise<void> {
  for (const theme of ['Dark', 'Light']) {
    await setTheme(page, `JupyterLab ${theme}`);
    await page.screenshot({ path: picture(`${name}-${theme.toLowerCase()}.png`) });
  }
}

/** How bright a drawing's empty corner is, from 0 (black) to 255 (white). */
export async function backdrop(canvas: Locator): Promise<number> {
  return canvas.evaluate((node) => {
    const drawing = node as HTMLCanvasElement;
    const pixel = drawing.getContext('2d')?.getImageData(2, drawing.height - 3, 1, 1).data;
    const [red = 0, green = 0, blue = 0] = pixel ?? [];
    return (red + green + blue) / 3;
  });
}

/** Writes a real TensorBoard event file into a folder of the server, with one falling loss. */
export async function writeEvents(page: IJupyterLabPageFixture, folder: string): Promise<void> {
  const here = mkdtempSync(path.join(tmpdir(), 'workbench-events-'));
  try {
    await promisify(execFile)(python, ['-c', WRITE_EVENTS, here]);
    for (const name of readdirSync(here)) {
      const content = readFileSync(path.join(here, name));
      await page.contents.uploadContent(content.toString('base64'), 'base64', `${folder}/${name}`);
    }
  } finally {
    rmSync(here, { recursive: true });
  }
}

const WRITE_EVENTS = `
import math, sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter(sys.argv[1])
for step in range(200):
    loss = Summary.Value(tag="train/loss", simple_value=2.3 * math.exp(-step / 60))
    writer.add_event(Event(step=step, wall_time=1e9 + step, summary=Summary(value=[loss])))
writer.close()
`;

/** Code that makes a small experiment of real modules and data; it trains in a second or two. */
export function experimentCode(name: string, epochs = 3, samples = 512): string {
  return [
    'import torch, workbench as wb',
    'torch.manual_seed(0)',
    `x, y = torch.randn(${samples}, 16), torch.randint(0, 3, (${samples},))`,
    'model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))',
    `exp = wb.Experiment(model, (x, y), val=(x, y), batch_size=32, epochs=${epochs}, name="${name}")`,
    'exp',
  ].join('\n');
}

/**
 * Code of an experiment that trains until it is stopped: 32,000 steps, each of which sleeps, so
 * that a training in the background leaves the cores to what is tested.
 */
export function longExperimentCode(name: string): string {
  const paced = [
    'import time',
    'class Paced(torch.nn.Sequential):',
    '    def forward(self, x):',
    '        time.sleep(0.01)',
    '        return super().forward(x)',
  ];
  const [imports, ...others] = experimentCode(name, 2000).split('\n');
  return [imports, ...paced, ...others].join('\n').replace('torch.nn.Sequential(t', 'Paced(t');
}

/** A notebook file with these code cells. */
export function notebookFile(cells: readonly string[]): string {
  return JSON.stringify({
    cells: cells.map((source, index) => ({
      cell_type: 'code',
      id: `cell-${index}`,
      execution_count: null,
      metadata: {},
      outputs: [],
      source,
    })),
    metadata: { kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' } },
    nbformat: 4,
    nbformat_minor: 5,
  });
}

/** Writes a text file into a folder of the server, whatever the two are called. */
export async function upload(
  page: IJupyterLabPageFixture,
  content: string,
  path: string,
): Promise<void> {
  const address = path.split('/').map(encodeURIComponent).join('/');
  await page.contents.uploadContent(content, 'text', address);
}

/** A notebook with these code cells, opened and run. Its path is returned. */
export async function runNotebook(
  page: IJupyterLabPageFixture,
  path: string,
  cells: readonly string[],
): Promise<string> {
  await upload(page, notebookFile(cells), path);
  await execute(page, 'docmanager:open', { path, factory: 'Notebook' });
  await runAll(page, path);
  return path;
}

/** What the tests use of the kernel that a notebook is connected to. */
interface Kernel {
  readonly status: string;
  readonly connectionStatus: string;
  readonly anyMessage: {
    connect(slot: (sender: unknown, said: Said) => void): void;
    disconnect(slot: (sender: unknown, said: Said) => void): void;
  };
  requestKernelInfo(): Promise<unknown>;
}

/** A message to or from a kernel. */
interface Said {
  readonly direction: string;
  readonly msg: { readonly channel: string; readonly parent_header: { msg_type?: string } };
}

/** Runs every cell of an open notebook; does not wait for the last one. */
export async function runAll(page: IJupyterLabPageFixture, path: string): Promise<void> {
  await page.evaluate(async (wanted) => {
    const { shell, commands } = window.jupyterapp;
    const panel = [...shell.widgets('main')].find(
      (one) => (one as unknown as { context?: { path: string } }).context?.path === wanted,
    ) as unknown as {
      id: string;
      sessionContext: { ready: Promise<void>; session: { kernel: Kernel | null } | null };
    };
    shell.activateById(panel.id);
    await panel.sessionContext.ready;
    const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    const isAnswering = async (): Promise<boolean> => {
      const kernel = panel.sessionContext.session?.kernel;
      if (kernel?.connectionStatus !== 'connected') return false;
      let heard = false;
      const listen = (_: unknown, { direction, msg }: Said): void => {
        const parent = msg.parent_header.msg_type;
        heard ||=
          direction === 'recv' && msg.channel === 'iopub' && parent === 'kernel_info_request';
      };
      kernel.anyMessage.connect(listen);
      const answer = kernel.requestKernelInfo().catch(() => undefined);
      const answered = await Promise.race([answer, pause(5_000)]);
      for (let waited = 0; waited < 100 && !heard; waited += 1) await pause(20);
      kernel.anyMessage.disconnect(listen);
      // such a request changes no status: where nothing else was requested since, it stays unknown
      return answered !== undefined && heard && ['idle', 'unknown'].includes(kernel.status);
    };
    // JupyterLab drops what is sent before a restarted kernel has settled: one that settled
    // answers, and is heard on the other channel.
    while (!(await isAnswering())) await pause(50);
    await commands.execute('notebook:run-all-cells');
  }, path);
}

/**
 * Resolves once JupyterLab has written down a layout that names `what`: it does so a moment after
 * the layout changed, and a page that is reloaded before knows nothing of a new tab.
 */
export async function layoutSaved(page: IJupyterLabPageFixture, what: string): Promise<void> {
  await page.waitForRequest(
    (request) =>
      request.method() === 'PUT' &&
      request.url().includes('/api/workspaces/') &&
      (request.postData() ?? '').includes(what),
    PATIENT,
  );
}

/** Loads the page again, and waits until JupyterLab has put back what was open. */
export async function reloadPage(page: IJupyterLabPageFixture): Promise<void> {
  const options = { waitForIsReady: false };
  await page.reload(options as Parameters<typeof page.reload>[0]);
  // A side panel that is opened before is closed again by the layout that comes back.
  await page.waitForFunction(() => window.jupyterapp !== undefined);
  await page.evaluate(() => window.jupyterapp.restored);
}

/** Runs a command of JupyterLab's by its id. */
export async function execute(
  page: IJupyterLabPageFixture,
  command: string,
  args: Record<string, unknown> = {},
): Promise<void> {
  await page.evaluate(
    async ([id, given]) => {
      await window.jupyterapp.commands.execute(id as string, given as never);
    },
    [command, args],
  );
}

/** The side panel, opened. */
export async function openSidePanel(page: IJupyterLabPageFixture): Promise<Locator> {
  const panel = page.locator('#workbench-side-panel');
  if (!(await panel.isVisible())) {
    await execute(page, 'workbench:show-side-panel');
  }
  return panel;
}

/** Waits until the active notebook's experiment is known to the extension. */
export async function experimentKnown(page: IJupyterLabPageFixture): Promise<void> {
  await page.waitForFunction(() => window.jupyterapp.commands.isEnabled('workbench:open-graph'));
}

/** The step that the panel shows, as its progress bar says it to a screen reader. */
export async function stepOf(panel: Locator): Promise<number> {
  return Number(await panel.getByRole('progressbar').getAttribute('aria-valuenow'));
}

/** The smoothed loss of a panel's chart. */
export function lossLine(panel: Locator): Locator {
  return panel.getByRole('figure', { name: /^Loss/ }).locator('svg.plot path.smooth');
}

/** The panel of an experiment in the notebook that is in front. */
export function panelOf(page: Page, name: string): Locator {
  const notebook = page.locator('.jp-Notebook:visible');
  return notebook.getByRole('region', { name: new RegExp(`^Experiment ${name}:`) });
}

/** Presses a button of a panel's. */
export async function press(panel: Locator, name: string): Promise<void> {
  await panel.getByRole('button', { name, exact: true }).click();
}

/** A value of a mode, in its switch. */
export function segment(within: Locator, mode: string, value: string): Locator {
  const choices = within.getByRole('radiogroup', { name: mode });
  return choices.getByRole('radio', { name: value, exact: true });
}
