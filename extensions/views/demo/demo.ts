/**
 * The front end without Jupyter: every state of the panel, in every theme. `?state=nan`,
 * `?theme=dark`, `?width=640`, `?font=wide`, `?side&runs=47`; without a state, all of them below each other.
 */
import { mountCaptures, mountExperiments, mountModes, mountPanel, mountRuns } from '../src';
import '../src/style/index.css';
import { EXPERIMENTS, kernel, manyExperiments, runs } from './states';
import { DemoRuns, DemoStore } from './store';

const query = new URLSearchParams(location.search);
const theme = query.get('theme') ?? 'light';
const root = document.documentElement;
root.dataset['jpThemeLight'] = String(theme === 'light');
if (theme !== 'none') root.dataset['jpThemeName'] = theme;
const family = { wide: '"DejaVu Sans", Verdana, sans-serif', arial: 'Arial, sans-serif' };
const font = query.get('font') ?? '';
if (font in family) {
  root.style.setProperty('--jp-ui-font-family', family[font as keyof typeof family]);
}
if (theme !== 'none') {
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = `/theme/${theme}.css`;
  document.head.append(link);
  await new Promise((resolve) => link.addEventListener('load', resolve));
}

/** The side panel's sections below each other, without JupyterLab's accordion around them. */
function side(): void {
  const place = document.createElement('div');
  place.style.width = `${query.get('width') ?? 320}px`;
  document.body.append(place);
  const store = new DemoStore(manyExperiments());
  let current = 'exp';
  const section = (): HTMLElement => place.appendChild(document.createElement('section'));
  mountExperiments(section(), store, { current: () => current, onSelect: (id) => (current = id) });
  mountModes(section(), store, { experiment: 'exp' });
  mountCaptures(section(), store, { experiment: 'exp' });
  const disk = new DemoRuns(runs(Number(query.get('runs') ?? 6)));
  mountRuns(section(), disk, disk);
}

const wanted = query.get('state');
if (query.has('side')) side();
const panels = query.has('side') ? [] : wanted ? [wanted] : Object.keys(EXPERIMENTS);
for (const name of panels) {
  const place = document.createElement('div');
  place.style.width = `${query.get('width') ?? 944}px`;
  place.dataset['state'] = name;
  if (!wanted) place.append(Object.assign(document.createElement('h2'), { textContent: name }));
  document.body.append(place);
  mountPanel(place, new DemoStore(kernel(name)), { experiment: 'demo' });
}
