import { existsSync } from 'node:fs';
import path from 'node:path';
import base from '@jupyterlab/galata/lib/playwright-config';
import { defineConfig } from '@playwright/test';

const checkout = path.resolve(__dirname, '../..');
// Two runs on one machine must not meet. Workers inherit the choice through the environment.
const port = (process.env.WORKBENCH_UI_PORT ??= String(20_000 + (process.pid % 20_000)));
const url = `http://127.0.0.1:${port}`;
const jupyter = path.join(checkout, '.venv/bin/jupyter');

/** The system's Chromium: Playwright's own is downloaded only where there is none. */
function chromium(): string | undefined {
  const found = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'];
  return found.find((one) => one !== undefined && existsSync(one));
}

export default defineConfig({
  ...(base as object),
  testDir: __dirname,
  outputDir: path.join(checkout, 'artifacts/ui-results'),
  reporter: [['list']],
  timeout: 120_000,
  expect: { timeout: 20_000 },
  workers: 1,
  // After a reload JupyterLab gives a busy kernel four seconds to hand its widgets back; on a
  // crowded machine that is not always enough. A test that needed its second try is listed as flaky.
  retries: 1,
  fullyParallel: false,
  forbidOnly: process.env.CI !== undefined,
  use: {
    baseURL: url,
    viewport: { width: 1600, height: 1000 },
    video: 'off',
    trace: 'retain-on-failure',
    launchOptions: {
      executablePath: chromium(),
      args: ['--no-sandbox', '--disable-background-networking'],
    },
  },
  webServer: {
    command: `${existsSync(jupyter) ? jupyter : 'jupyter'} lab --config ${path.join(__dirname, 'jupyter_server_test_config.py')}`,
    url: `${url}/lab`,
    cwd: checkout,
    timeout: 120_000,
    reuseExistingServer: process.env.WORKBENCH_UI_REUSE !== undefined,
    stdout: 'ignore',
    stderr: process.env.WORKBENCH_UI_LOG === undefined ? 'ignore' : 'pipe',
  },
});
