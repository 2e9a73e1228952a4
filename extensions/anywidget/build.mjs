// Bundles every src/*.ts into workbench/static/<name>.js: one self-contained ES module per widget.
// The stylesheet of the view of that name goes beside it, as <name>.css: anywidget puts it into the
// page once, however many widgets show the view. Other stylesheets are inlined as text. Fails when
// a module reaches the size at which widgets become a burden: anywidget syncs it once per widget
// instance, and notebooks hold many of those.
import { existsSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import esbuild from 'esbuild';

const LIMIT = 100_000;
const here = dirname(fileURLToPath(import.meta.url));
const views = join(here, '..', 'views', 'src');
const outdir = process.env.WORKBENCH_STATIC ?? join(here, '..', '..', 'workbench', 'static');

/** `import css from 'x.css'`: the stylesheet, its @imports resolved and minified, as a string. */
export const cssAsText = {
  name: 'css-as-text',
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const result = await minified(path);
      const watchFiles = Object.keys(result.metafile.inputs);
      return { contents: result.outputFiles[0].text, loader: 'text', watchFiles };
    });
  },
};

/** A stylesheet and all that it imports, in one. */
function minified(path) {
  return esbuild.build({
    entryPoints: [path],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    logLevel: 'silent',
  });
}

/** What the panel wears: files that the labextension shares, beside its module like a view's own. */
const PANEL = join(views, 'style', 'widget.css');

/**
 * The path of the stylesheet of a view, `views/src/graph/style.ts`; its export is `STYLE`. A bundle
 * is called as Python calls it: `memory_diff` is of `memory-diff`.
 */
const styleOf = (name) => join(views, name.replaceAll('_', '-'), 'style.ts');

/** Leaves a view's own stylesheet out of its module. */
const styleApart = {
  name: 'style-apart',
  setup(build) {
    build.onLoad({ filter: /[\\/]style\.ts$/ }, ({ path }) =>
      dirname(dirname(path)) === views ? { contents: "export const STYLE = '';" } : undefined,
    );
  },
};

/** The stylesheet of a view, minified; null for a view that has none of its own. */
async function stylesheet(name) {
  if (name === 'panel') return (await minified(PANEL)).outputFiles[0].text;
  if (!existsSync(styleOf(name))) return null;
  const { outputFiles } = await esbuild.build({
    bundle: true,
    format: 'esm',
    entryPoints: [styleOf(name)],
    write: false,
  });
  const code = Buffer.from(outputFiles[0].contents).toString('base64');
  const { STYLE } = await import(`data:text/javascript;base64,${code}`);
  const { code: css } = await esbuild.transform(STYLE, { loader: 'css', minify: true });
  return css;
}

export const options = {
  bundle: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  conditions: ['source'],
  legalComments: 'none',
  plugins: [cssAsText],
};

/** A second pass over what esbuild minified takes five per cent more; JupyterLab's builder has it. */
async function smaller(code) {
  const builder = createRequire(import.meta.url).resolve('@jupyter/builder/package.json');
  const { experiments } = createRequire(builder)('@rspack/core');
  // Nothing here is called with `new` or reads `arguments` but classes: methods may be arrows. And
  // nothing puts functions of its own in the place of String, Array and Object.
  const compress = {
    ecma: 2022,
    passes: 3,
    unsafe: true,
    unsafe_arrows: true,
    unsafe_methods: true,
  };
  const result = await experiments.swc.minify(code, { module: true, ecma: 2022, compress });
  return result.code;
}

async function bundle() {
  const entries = (await readdir(join(here, 'src')))
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.d.ts'))
    .map((name) => join(here, 'src', name));
  await mkdir(outdir, { recursive: true });
  const { outputFiles } = await esbuild.build({
    ...options,
    plugins: [...options.plugins, styleApart],
    entryPoints: entries,
    outdir,
    minify: true,
    write: false,
  });
  for (const { path, text } of outputFiles) {
    const code = Buffer.from(await smaller(text));
    await writeFile(path, code);
    const bytes = code.length;
    const css = await stylesheet(basename(path, '.js'));
    if (css !== null) await writeFile(path.replace(/js$/, 'css'), css);
    const beside = css === null ? '' : `, stylesheet ${(css.length / 1000).toFixed(1)} kB`;
    console.log(`${basename(path)}  ${(bytes / 1000).toFixed(1)} kB${beside}`);
    if (bytes >= LIMIT) {
      console.error(`${path} is ${bytes} bytes; a widget's module must stay under ${LIMIT}`);
      process.exitCode = 1;
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundle();
