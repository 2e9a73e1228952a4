// Pictures of the memory view to look at: `node views/demo/memory-shots.mjs RECORDS OUT [SCENE ...]`.
// RECORDS holds saved memory records, a scene is a record and what to do with it: keys, clicks on
// buttons (`text=`) or selectors (`click:`), points of the map (`map:x,y`) and words to look for
// (`find:`). Each is drawn light and dark in Chromium, with the time from record to first drawing
// and, with `scrub`, the frames per second while the scrubber moves.
import { existsSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from '@playwright/test';
import esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const [records, out, ...wanted] = process.argv.slice(2);
const VENV = process.env.VIRTUAL_ENV ?? join(here, '../../../.venv');
const [width, height] = (process.env.SIZE ?? '1600x1000').split('x').map(Number);

/** `name=record,action,action`, so that any record can be looked at. */
const SCENES = wanted.map((scene) => {
  const [name, rest] = [scene.slice(0, scene.indexOf('=')), scene.slice(scene.indexOf('=') + 1)];
  const [record, ...actions] = rest.split(';');
  return { name, record, actions };
});

const { outputFiles } = await esbuild.build({
  entryPoints: [join(here, 'memory.ts')],
  outdir: here,
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
<style>body{margin:0;height:100vh;font:13px sans-serif}#host{height:100%}</style>
<body data-jp-theme-light="${name === 'light'}"><div id="host"></div>
<script type="module" src="/memory.js"></script>`;

const server = createServer(async ({ url }, response) => {
  const { pathname, searchParams } = new URL(url, 'http://localhost');
  const send = (type, body) => response.writeHead(200, { 'content-type': type }).end(body);
  const themed = /^\/theme\/(light|dark)\.css$/.exec(pathname);
  const record = /^\/(\w+)\.wb$/.exec(pathname);
  if (themed) send('text/css', await theme(themed[1]));
  else if (record)
    send('application/octet-stream', await readFile(join(records, `${record[1]}.wb`)));
  else if (pathname === '/memory.js')
    send('text/javascript', outputFiles.find(({ path }) => path.endsWith('.js')).text);
  else send('text/html; charset=utf-8', page(searchParams.get('theme') ?? 'light'));
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const origin = `http://127.0.0.1:${server.address().port}`;

/** Moves the scrubber through the whole recording, frame by frame. */
async function scrub(tab) {
  return tab.evaluate(async () => {
    const canvas = document.querySelector('.wv-timeline');
    canvas.setPointerCapture = () => {}; // a made-up pointer cannot be captured
    const box = canvas.getBoundingClientRect();
    const at = (type, part) =>
      canvas.dispatchEvent(
        new PointerEvent(type, {
          button: 0,
          clientX: box.left + 72 + part * (box.width - 92),
          clientY: box.top + 80,
          bubbles: true,
        }),
      );
    at('pointerdown', 0.1);
    at('pointerup', 0.1);
    await new Promise(requestAnimationFrame);
    at('pointerdown', 0.1);
    const frames = 90;
    const began = performance.now();
    let slowest = 0;
    let before = began;
    for (let frame = 0; frame < frames; frame += 1) {
      at('pointermove', 0.1 + (0.8 * frame) / frames);
      await new Promise(requestAnimationFrame);
      await new Promise((done) => setTimeout(done));
      slowest = Math.max(slowest, performance.now() - before);
      before = performance.now();
    }
    at('pointerup', 0.9);
    const fps = (1000 * frames) / (performance.now() - began);
    return `${fps.toFixed(0)} frames/s, slowest ${slowest.toFixed(0)} ms`;
  });
}

async function act(tab, action) {
  const cut = action.search(/[:=]/);
  const [verb, what] = cut < 0 ? [action, ''] : [action.slice(0, cut), action.slice(cut + 1)];
  if (verb === 'scrub') console.log(`  ${await scrub(tab)}`);
  else if (verb === 'key') {
    await tab.locator('canvas.wv-timeline').focus();
    await tab.keyboard.press(what);
  } else if (verb === 'mapkey') {
    await tab.locator('canvas.wv-map').focus();
    await tab.keyboard.press(what);
  } else if (verb === 'map' || verb === 'hover' || verb === 'chart' || verb === 'lens') {
    const [x, y] = what.split(',').map(Number);
    const selector = { chart: 'canvas.wv-timeline', lens: 'canvas.wv-lens' }[verb];
    const canvas = tab.locator(selector ?? 'canvas.wv-map');
    if (verb === 'hover') await canvas.hover({ position: { x, y } });
    else await canvas.click({ position: { x, y } });
  } else if (verb === 'find') await tab.locator('input[type=search]').fill(what);
  else
    await tab
      .locator(verb === 'text' ? `button:has-text("${what}")` : what)
      .first()
      .click();
}

await mkdir(resolve(out), { recursive: true });
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
for (const { name, record, actions } of SCENES) {
  for (const mode of (process.env.THEMES ?? 'light,dark').split(',')) {
    const tab = await browser.newPage({ viewport: { width, height } });
    tab.on('pageerror', (error) => console.error(`${name}: ${error.stack}`));
    await tab.goto(`${origin}/?theme=${mode}&record=/${record}.wb`);
    await tab.waitForFunction('document.title.endsWith("ms")');
    await tab.waitForTimeout(300);
    for (const action of actions) await act(tab, action);
    await tab.waitForTimeout(300);
    await tab.screenshot({ path: join(out, `${name}-${mode}.png`) });
    console.log(`${name} ${mode}  mounted in ${await tab.title()}`);
    await tab.close();
  }
}
await browser.close();
server.close();
