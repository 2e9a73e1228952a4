// Pictures of the gradient-flow strip to look at: `node views/demo/flow-shots.mjs RECORDS OUT`.
// RECORDS is what flow_records.py wrote. Every scene is drawn light and dark in Chromium.
import { existsSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from '@playwright/test';
import esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const [records, out, ...wanted] = process.argv.slice(2);
const VENV = process.env.VIRTUAL_ENV ?? join(here, '../../../.venv');

/** Query of the page, then keys to press on the strip. */
const SCENES = {
  exit: ['record=/flow_exit.wb&captured=42'],
  exit_cursor: ['record=/flow_exit.wb&captured=42', 'ArrowLeft', 'ArrowDown', 'Shift+ArrowLeft'],
  long: ['record=/flow_long.wb&captured=100'],
  nan: ['record=/flow_nan.wb', 'End'],
  deep: ['record=/flow_deep.wb', 'Home', 'Enter'],
  table: ['record=/flow_exit.wb', '[', 't'],
  narrow: ['record=/flow_exit.wb&captured=42&width=480'],
  empty: [''],
  error: ['error=expected a workbench.gradient_flow/1 record, got workbench.memory/2'],
};

const { outputFiles } = await esbuild.build({
  entryPoints: [join(here, 'flow.ts')],
  bundle: true,
  format: 'esm',
  target: 'es2022',
  conditions: ['source'],
  write: false,
});

async function theme(name) {
  const path = join(VENV, `share/jupyter/lab/themes/@jupyterlab/theme-${name}-extension/index.css`);
  const colours = join(here, '../../node_modules/@jupyterlab/apputils/style/materialcolors.css');
  return existsSync(path) ? (await readFile(colours)) + (await readFile(path)) : '';
}

const page = (name) => `<!doctype html><html data-jp-theme-name="${name}"><meta charset="utf-8">
<link rel="stylesheet" href="/theme/${name}.css">
<style>body{margin:0;font:13px sans-serif;background:var(--jp-layout-color1)}</style>
<body data-jp-theme-light="${name === 'light'}"><div id="host"></div>
<script type="module" src="/flow.js"></script>`;

const server = createServer(async ({ url }, response) => {
  const { pathname, searchParams } = new URL(url, 'http://localhost');
  const send = (type, body) => response.writeHead(200, { 'content-type': type }).end(body);
  const themed = /^\/theme\/(light|dark)\.css$/.exec(pathname);
  if (themed) send('text/css', await theme(themed[1]));
  else if (/^\/\w+\.wb$/.test(pathname))
    send('application/octet-stream', await readFile(join(records, pathname)));
  else if (pathname === '/flow.js') send('text/javascript', outputFiles[0].text);
  else send('text/html; charset=utf-8', page(searchParams.get('theme') ?? 'light'));
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const origin = `http://127.0.0.1:${server.address().port}`;

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
await mkdir(out, { recursive: true });
for (const [name, [query, ...keys]] of Object.entries(SCENES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  for (const shade of ['light', 'dark']) {
    const tab = await browser.newPage({
      viewport: { width: 1000, height: 460 },
      colorScheme: shade,
    });
    tab.on('pageerror', (error) => console.error(name, error));
    await tab.goto(`${origin}/?theme=${shade}&${encodeURI(query)}`);
    await tab.waitForFunction(() => document.title.endsWith('ms'));
    if (keys.length > 0) await tab.locator('canvas').focus();
    for (const key of keys) await tab.keyboard.press(key);
    await tab.waitForTimeout(100);
    const went = await tab.evaluate(() => document.body.dataset.went);
    console.log(name, shade, await tab.title(), went ?? '');
    await tab.screenshot({ path: join(out, `${name}-${shade}.png`) });
    await tab.close();
  }
}
await browser.close();
server.close();
