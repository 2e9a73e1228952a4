// One module for jupyter-builder: our views and records are bundled in from their sources, and
// what JupyterLab itself provides stays an import.
import { rmSync } from 'node:fs';
import { build } from 'esbuild';

rmSync(new URL('lib', import.meta.url), { recursive: true, force: true });
await build({
  absWorkingDir: import.meta.dirname,
  entryPoints: ['src/index.ts'],
  outfile: 'lib/index.js',
  bundle: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  conditions: ['source'],
  external: ['@jupyterlab/*', '@lumino/*'],
  loader: { '.ipynb': 'json', '.css': 'text' },
  legalComments: 'none',
  sourcemap: process.argv.includes('--sourcemap'),
  logLevel: 'warning',
});
