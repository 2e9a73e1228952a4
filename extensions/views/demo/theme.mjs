// JupyterLab's own themes, from an installed JupyterLab: a page shows what a person will see.
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const prefixes = [process.env.VIRTUAL_ENV, join(here, '..', '..', '..', '.venv')].filter(Boolean);
const PACKAGES = {
  light: 'theme-light-extension',
  dark: 'theme-dark-extension',
  contrast: 'theme-dark-high-contrast-extension',
};

/** The stylesheet of a theme; a comment where JupyterLab is not installed. */
export async function theme(name) {
  const paths = prefixes.map((prefix) =>
    join(prefix, 'share/jupyter/lab/themes/@jupyterlab', PACKAGES[name] ?? '', 'index.css'),
  );
  const path = paths.find((one) => existsSync(one));
  if (!path) return '/* JupyterLab is not installed: the fallback theme is shown */';
  // The application, not the theme, defines the Material colours that themes refer to.
  const colours = join(here, '../../node_modules/@jupyterlab/apputils/style/materialcolors.css');
  return Buffer.concat([await readFile(colours), await readFile(path)]);
}
