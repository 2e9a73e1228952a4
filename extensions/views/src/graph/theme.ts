/** Colours of the drawings, read from the page so that themes and forced colours apply. */
import { watchSize } from '../dom';

export interface Palette {
  ink: string;
  ink2: string;
  canvas: string;
  raise: string;
  level: [string, string];
  stroke: string;
  stroke2: string;
  edge: string;
  flow: string;
  hatch: string;
  hatchBack: string;
  select: string;
  bad: string;
  grid: string;
  scale: string[];
  scaleInk: string[];
  categories: Record<string, { fill: string; ink: string; outline: string }>;
  font: string;
  /** The colour behind a token that only one of the views has. */
  token: (name: string) => string;
}

/** The colours of categories, those first that distinguish any few things best; grey comes last. */
const CATEGORY_TOKENS = [
  'buffers',
  'temporaries',
  'activations',
  'optimizer',
  'gradients',
  'parameters',
  'unknown',
] as const;
const GREY = CATEGORY_TOKENS.length - 1;

/** The name of the category whose colour the nth of a row of things takes; never the grey one. */
export function swatchName(index: number): string {
  return CATEGORY_TOKENS[index % GREY] ?? '';
}

/** Colours that go by the name of their token. */
const PLAIN = [
  'ink',
  'ink2',
  'canvas',
  'raise',
  'stroke',
  'stroke2',
  'edge',
  'flow',
  'hatch',
  'bad',
  'grid',
] as const;

/** Reads the tokens as they apply to `element`, which must be in the page. */
export function readPalette(element: HTMLElement): Palette {
  const style = getComputedStyle(element);
  const get = (name: string): string => style.getPropertyValue(name).trim() || '#888';
  const steps = Array.from({ length: 9 }, (_, step) => step);
  const plain = Object.fromEntries(PLAIN.map((name) => [name, get(`--wb-${name}`)]));
  return {
    ...(plain as Record<(typeof PLAIN)[number], string>),
    hatchBack: get('--wb-hatchbg'),
    select: get('--wb-sel'),
    level: [get('--wb-lvl1'), get('--wb-lvl2')],
    scale: steps.map((step) => get(`--wb-s${step}`)),
    scaleInk: steps.map((step) => get(`--wb-t${step}`)),
    categories: Object.fromEntries(
      CATEGORY_TOKENS.map((name) => [
        name,
        { fill: get(`--wb-c-${name}`), ink: get(`--wb-i-${name}`), outline: get(`--wb-o-${name}`) },
      ]),
    ),
    font: style.fontFamily || 'sans-serif',
    token: get,
  };
}

const DARK = '(prefers-color-scheme: dark)';
export const FORCED = '(forced-colors: active)';

/** What the page says to a media query; null where there are none. */
export function matching(query: string): MediaQueryList | null {
  return typeof matchMedia === 'function' ? matchMedia(query) : null;
}

/**
 * Marks `element` as light or dark by the surface it is on and hands out its colours: now,
 * whenever the theme changes, whenever the element comes into sight, and when its pixels become
 * others (another monitor, zoom), for which drawings are made anew. Nothing is read from an element
 * outside the page, which has no style: JupyterLab takes cells far from view out of it, and may fill
 * them there.
 */
export function followTheme(
  element: HTMLElement,
  onPalette: (palette: Palette) => void,
): () => void {
  const apply = (): void => {
    if (!element.isConnected) return;
    element.dataset['wbTheme'] = isDark(element) ? 'dark' : 'light';
    onPalette(readPalette(element));
  };
  const sight = watchSight(element, apply);
  const observer = new MutationObserver(() => requestAnimationFrame(apply));
  const filter = ['class', 'data-jp-theme-name', 'data-jp-theme-light', 'data-theme', 'style'];
  for (const node of [document.documentElement, document.body])
    observer.observe(node, { attributeFilter: filter });
  const end = new AbortController();
  const { signal } = end;
  for (const query of [DARK, FORCED])
    matching(query)?.addEventListener('change', apply, { signal });
  const pixels = (): void => {
    // a query is of one ratio: the next change is heard by a query of the new one
    const now = matching(`(resolution:${devicePixelRatio}dppx)`);
    now?.addEventListener('change', pixels, { signal, once: true });
    apply();
  };
  pixels();
  return () => {
    sight();
    observer.disconnect();
    end.abort();
  };
}

/** Calls `onSeen` whenever the element gets a size after it had none. */
function watchSight(element: HTMLElement, onSeen: () => void): () => void {
  let seen = element.clientWidth > 0;
  return watchSize(() => {
    const before = seen;
    seen = element.clientWidth > 0;
    if (seen && !before) onSeen();
  }, element);
}

/** JupyterLab says so itself; elsewhere the surface behind the element decides. */
function isDark(element: HTMLElement): boolean {
  const declared = document.body.dataset['jpThemeLight'];
  if (declared !== undefined) return declared === 'false';
  for (let at: HTMLElement | null = element.parentElement; at; at = at.parentElement) {
    const parts =
      getComputedStyle(at)
        .backgroundColor.match(/[\d.]+/g)
        ?.map(Number) ?? [];
    const [red = 255, green = 255, blue = 255, alpha = 1] = parts;
    if (parts.length >= 3 && alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 110;
  }
  return matching(DARK)?.matches ?? false;
}
