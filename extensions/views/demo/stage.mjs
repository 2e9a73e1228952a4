// Where pictures of a view are taken: its scripts and saved records behind a page of their own in
// Chromium, under a theme of JupyterLab.
import { mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from '@playwright/test';
import esbuild from 'esbuild';
import { theme } from './theme.mjs';

const here = dirname(fileURLToPath(import.meta.url));

const page = (name, script) => `<!doctype html><html data-jp-theme-name="${name}">
<meta charset="utf-8"><link rel="stylesheet" href="/theme/${name}.css">
<style>
body{margin:0;height:100vh;font:13px sans-serif;background:var(--jp-layout-color1)}
#host{height:100%}
</style>
<body data-jp-theme-light="${name === 'light'}"><div id="host"></div>
<script type="module" src="/${script}.js"></script>`;

/** Built scripts, records of a folder and the pages that show them, on a port of this machine. */
async function serve({ records, scripts, scriptOf }) {
  const { outputFiles } = await esbuild.build({
    entryPoints: scripts.map((name) => join(here, `${name}.ts`)),
    outdir: here,
    bundle: true,
    format: 'esm',
    target: 'es2022',
    conditions: ['source'],
    write: false,
  });
  const bundles = new Map(outputFiles.map(({ path, text }) => [path.slice(here.length), text]));
  const server = createServer(async ({ url }, response) => {
    const { pathname, searchParams } = new URL(url, 'http://localhost');
    const send = (type, body) => response.writeHead(200, { 'content-type': type }).end(body);
    const themed = /^\/theme\/(\w+)\.css$/.exec(pathname);
    if (themed) send('text/css', await theme(themed[1]));
    else if (/^\/\w+\.wb$/.test(pathname))
      send('application/octet-stream', await readFile(join(records, pathname)));
    else if (bundles.has(pathname)) send('text/javascript', bundles.get(pathname));
    else {
      const html = page(searchParams.get('theme') ?? 'light', scriptOf(searchParams));
      send('text/html; charset=utf-8', html);
    }
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return server;
}

export class Stage {
  /**
   * Builds `scripts`, modules of this folder without their ending, and serves them beside the
   * records (`<name>.wb`) of a folder. `scriptOf` names the one that a page's query asks for; each
   * sets the title to the time of its first drawing, "... ms".
   */
  static async open({ records, out, scripts, scriptOf = () => scripts[0] }) {
    const stage = new Stage();
    stage.out = resolve(out);
    await mkdir(stage.out, { recursive: true });
    stage.server = await serve({ records, scripts, scriptOf });
    const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
    stage.browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
    return stage;
  }

  /**
   * Opens a page under each theme, lets `act` do what it will, and takes its picture. The page may
   * call the functions of `exposed` by their names.
   */
  async shoot(name, query, act, options = {}) {
    const { width = 1600, height = 1000, themes = ['light', 'dark'], exposed = {} } = options;
    for (const mode of themes) {
      const colorScheme = mode === 'light' ? 'light' : 'dark';
      const tab = await this.browser.newPage({ viewport: { width, height }, colorScheme });
      for (const [called, one] of Object.entries(exposed)) await tab.exposeFunction(called, one);
      tab.on('pageerror', (error) => console.error(`${name}: ${error.stack}`));
      await tab.goto(`http://127.0.0.1:${this.server.address().port}/?theme=${mode}&${query}`);
      await tab.waitForFunction('document.title.endsWith("ms")');
      await act(tab);
      await tab.waitForTimeout(300);
      await tab.screenshot({ path: join(this.out, `${name}-${mode}.png`) });
      console.log(`${name} ${mode}  first drawing ${await tab.title()}`);
      await tab.close();
    }
  }

  async close() {
    await this.browser.close();
    this.server.close();
  }
}
