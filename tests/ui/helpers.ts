import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { IJupyterLabPageFixture } from '@jupyterlab/galata';

const checkout = path.resolve(__dirname, '../..');
const venv = path.join(checkout, '.venv/bin/python');
export const python = existsSync(venv) ? venv : 'python3';

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

/** Writes a real TensorBoard event file into a folder of the server, with one falling loss. */
export async function writeEvents(page: IJupyterLabPageFixture, folder: string): Promise<void> {
  const here = mkdtempSync(path.join(tmpdir(), 'workbench-events-'));
  try {
    await promisify(execFile)(python, ['-c', WRITE_EVENTS, here]);
    for (const name of readdirSync(here)) {
      const content = readFileSync(path.join(here, name));
      await page.contents.uploadContent(
        content.toString('base64'),
        'base64',
        `${folder}/${name}`,
      );
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
