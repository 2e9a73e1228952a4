// `npm run demo`: the views without Jupyter, rebuilt on every reload, under JupyterLab's own themes.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import esbuild from 'esbuild';
import { theme } from './theme.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const port = Number(process.env.PORT ?? 8765);

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
