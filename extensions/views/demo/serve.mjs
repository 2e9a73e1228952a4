// `npm run demo`: the views without Jupyter, rebuilt on every reload. JupyterLab's own themes are
// served from an installed JupyterLab, so that the page shows what a person will see.
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const port = Number(process.env.PORT ?? 8765);
const prefixes = [process.env.VIRTUAL_ENV, join(here, '..', '..', '..', '.venv')].filter(Boolean);
const PACKAGES = {
  light: 'theme-light-extension',
  dark: 'theme-dark-extension',
  contrast: 'theme-dark-high-contrast-extension',
};

async function theme(name) {
  const paths = prefixes.map((prefix) =>
    join(prefix, 'share/jupyter/lab/themes/@jupyterlab', PACKAGES[name] ?? '', 'index.css'),
  );
  const path = paths.find((one) => existsSync(one));
  if (!path) return '/* JupyterLab is not installed: the fallback theme is shown */';
  // The application, not the theme, defines the Material colours that themes refer to.
  const colours = join(here, '../../node_modules/@jupyterlab/apputils/style/materialcolors.css');
  return Buffer.concat([await readFile(colours), await readFile(path)]);
}

async function bundle() {
  const result = await esbuild.build({
    entryPoints: [join(here, 'demo.ts')],
    bundle: true,
    format: 'esm',
    target: 'es2022',
    conditions: ['source'],
    sourcemap: 'inline',
    write: false,
    outdir: here,
  });
  return Object.fromEntries(
    result.outputFiles.map((file) => [file.path.split('.').pop(), file.text]),
  );
}

const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://localhost');
  const send = (type, body) => response.writeHead(200, { 'content-type': type }).end(body);
  try {
    const themed = /^\/theme\/(\w+)\.css$/.exec(pathname);
    if (themed) send('text/css', await theme(themed[1]));
    else if (pathname === '/demo.js') send('text/javascript', (await bundle()).js);
    else if (pathname === '/demo.css') send('text/css', (await bundle()).css);
    else if (pathname === '/') send('text/html', await readFile(join(here, 'index.html')));
    else response.writeHead(404).end();
  } catch (error) {
    response.writeHead(500, { 'content-type': 'text/plain' }).end(String(error));
  }
});
server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`));
