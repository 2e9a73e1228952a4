import { existsSync } from 'node:fs';
import path from 'node:path';
import base from '@jupyterlab/galata/lib/playwright-config';
import { defineConfig } from '@playwright/test';

const checkout = path.resolve(__dirname, '../..');
const jupyter = path.join(checkout, '.venv/bin/jupyter');

/** How many tests run side by side, each worker with a Jupyter server of its own. */
const workers = Number(process.env.WORKBENCH_UI_WORKERS ?? 2);
// Two runs on one machine must not meet, nor a port that the system hands out. Workers inherit the choice through the environment.
const firstPort = Number(
  (process.env.WORKBENCH_UI_PORT ??= String(20_000 + 8 * (process.pid % 1_500))),
);

/** The server of one worker: what it holds (kernels, runs, settings) is used by no other worker. */
function url(worker: number): string {
  return `http://127.0.0.1:${firstPort + worker}`;
}

/** The system's Chromium: Playwright's own is downloaded only where there is none. */
function chromium(): string | undefined {
  const found = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'];
  return found.find((one) => one !== undefined && existsSync(one));
}

/** What takes minutes begins first, so that no worker is left with it at the end. */
const long = ['toggles', 'modes-notebook', 'journey', 'memory-notebook', 'graph-notebook'].map(
  (name) => `${name}.spec.ts`,
);

export default defineConfig({
  ...(base as object),
  testDir: __dirname,
  outputDir: path.join(checkout, 'artifacts/ui-results'),
  reporter: [['list'], ['./summary-reporter.ts']],
  // No limit is one machine's: each only ends what hangs.
  timeout: 900_000,
  expect: { timeout: 60_000 },
  workers,
  // After a reload JupyterLab gives a busy kernel four seconds to hand its widgets back; on a
  // crowded machine that is not always enough. Who needed a second try is listed at the end.
  retries: 1,
  projects: [
    { name: 'long', testMatch: long },
    { name: 'short', testIgnore: long },
  ],
  // Tests share nothing, so that those of one file may run on both workers.
  fullyParallel: true,
  forbidOnly: process.env.CI !== undefined,
  use: {
    baseURL: url(Number(process.env.TEST_PARALLEL_INDEX ?? 0)),
    viewport: { width: 1600, height: 1000 },
    // A control that cannot be pressed fails its step, not the whole test's time.
    actionTimeout: 60_000,
    video: 'off',
    // Without its pictures, which cost more than the rest of a test that draws while it trains.
    trace: { mode: 'on-first-retry', screenshots: false },
    launchOptions: {
      executablePath: chromium(),
      args: ['--no-sandbox', '--disable-background-networking'],
    },
  },
  webServer: Array.from({ length: workers }, (_, worker) => ({
    command: `${existsSync(jupyter) ? jupyter : 'jupyter'} lab --config ${path.join(__dirname, 'jupyter_server_test_config.py')}`,
    url: `${url(worker)}/lab`,
    cwd: checkout,
    env: { WORKBENCH_UI_PORT: String(firstPort + worker) },
    timeout: 300_000,
    reuseExistingServer: process.env.WORKBENCH_UI_REUSE !== undefined,
    stdout: 'ignore' as const,
    stderr: process.env.WORKBENCH_UI_LOG === undefined ? ('ignore' as const) : ('pipe' as const),
  })),
});
