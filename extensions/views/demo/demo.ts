/**
 * The front end without Jupyter: every state of the panel, in every theme. `?state=nan`,
 * `?theme=dark`, `?width=640`, `?font=wide`; without a state, all of them below each other.
 */
import { mountPanel } from '../src';
import '../src/style/index.css';
import { EXPERIMENTS, kernel } from './states';
import { DemoStore } from './store';

const query = new URLSearchParams(location.search);
const theme = query.get('theme') ?? 'light';
const root = document.documentElement;
root.dataset['jpThemeLight'] = String(theme === 'light');
if (theme !== 'none') root.dataset['jpThemeName'] = theme;
if (query.get('font') === 'wide') {
  root.style.setProperty('--jp-ui-font-family', '"DejaVu Sans", Verdana, sans-serif');
}
if (theme !== 'none') {
  const link = document.createElement('link');
  link.rel = 'stylesheet';
  link.href = `/theme/${theme}.css`;
  document.head.append(link);
  await new Promise((resolve) => link.addEventListener('load', resolve));
}

const wanted = query.get('state');
for (const name of wanted ? [wanted] : Object.keys(EXPERIMENTS)) {
  const place = document.createElement('div');
  place.style.width = `${query.get('width') ?? 944}px`;
  place.dataset['state'] = name;
  if (!wanted) place.append(Object.assign(document.createElement('h2'), { textContent: name }));
  document.body.append(place);
  mountPanel(place, new DemoStore(kernel(name)), { experiment: 'demo' });
}
