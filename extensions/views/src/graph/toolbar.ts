/** The bar above the drawing. */
import { button, h, keyCap, link, on, press } from './dom';
import { shorten } from './format';
import type { Item } from './groups';
import type { Drawing } from './drawing';
import { nameOf } from './tree-panel';

/** What the bar needs from its view. */
export interface ToolbarHost {
  show: (item: Item | null) => void;
  readonly finder: { find: (query: string) => void; next: (backwards: boolean) => void };
  zoom: (factor: number) => void;
  fit: () => void;
  toggleTable: () => void;
  togglePanel: (panel: 'tree' | 'inspector') => void;
}

export interface Toolbar {
  element: HTMLElement;
  search: HTMLInputElement;
  update: (state: Drawing | null, table: boolean, at: number) => void;
  /** Leaves of the path what there is room for. */
  measure: () => void;
  /** Shows the zoom; called for every frame of a pan, so it touches one text. */
  showZoom: (zoom: number) => void;
  /** Shows which side panels are open. */
  panels: (tree: boolean, inspector: boolean) => void;
}

/** Controls that are not the bar's own: the host's at both ends, the face's in the middle. */
export interface BarSlots {
  lead: readonly Node[];
  middle: readonly Node[];
  tail: readonly Node[];
}

const FIND = 'Find operation or module';
const UNPRESSED = { 'aria-pressed': 'false' };

export function toolbar(view: ToolbarHost, { lead, middle, tail }: BarSlots): Toolbar {
  const crumbs = h('nav', { class: 'wv-crumbs', 'aria-label': 'Selected module' });
  const tree = button('Modules', () => view.togglePanel('tree'), UNPRESSED);
  const inspector = button('Details', () => view.togglePanel('inspector'), UNPRESSED);
  const search = h('input', {
    type: 'search',
    placeholder: FIND,
    'aria-label': FIND,
    maxlength: 200,
  });
  const found = h('output', { 'aria-live': 'polite' });
  const find = h('label', 'wv-find', search, found, keyCap('/'));
  on(search, 'input', () => view.finder.find(search.value));
  on(search, 'keydown', (event) => {
    if (event.key === 'Enter') {
      event.preventDefault();
      view.finder.next(event.shiftKey);
    }
  });
  const percent = h('span', { 'aria-live': 'off' }, '100 %');
  const step = (label: string, text: string, factor: number): HTMLElement => {
    const onclick = (): void => view.zoom(factor);
    return h('button', { type: 'button', 'aria-label': label, title: label, onclick }, text);
  };
  const zoom = h('div', { class: 'wv-seg', role: 'group', 'aria-label': 'Zoom' });
  zoom.append(step('Zoom out', '−', 1 / 1.25), percent, step('Zoom in', '+', 1.25));
  const table = button('Table', () => view.toggleTable(), UNPRESSED, 'T');
  const element = h('div', { class: 'wv-bar', role: 'toolbar', 'aria-label': 'Graph' });
  element.append(...lead, tree, crumbs, h('span', 'wv-space'), ...middle);
  element.append(
    find,
    zoom,
    button('Fit', () => view.fit(), {}, 'F'),
    table,
    inspector,
    ...tail,
  );

  const showZoom = (scale: number): void => {
    const text = `${scale < 0.1 ? (scale * 100).toFixed(1) : Math.round(scale * 100)} %`;
    if (percent.textContent !== text) percent.textContent = text;
  };
  const update = (state: Drawing | null, tableOn: boolean, at: number): void => {
    press(table, tableOn);
    const count = state?.matches.length ?? 0;
    found.textContent = state?.query ? (count === 0 ? 'none' : `${at + 1} of ${count}`) : '';
    crumbs.replaceChildren(...breadcrumbs(state, view.show));
    crumbs.title = crumbs.textContent ?? '';
    measure();
  };
  const measure = (): void => {
    crumbs.removeAttribute('data-cut');
    crumbs.toggleAttribute('data-cut', crumbs.scrollWidth > crumbs.clientWidth);
  };
  const panels = (treeOn: boolean, inspectorOn: boolean): void => {
    press(tree, treeOn);
    press(inspector, inspectorOn);
  };
  return { element, search, update, measure, showZoom, panels };
}

function breadcrumbs(state: Drawing | null, select: (item: Item | null) => void): Node[] {
  if (!state) return [];
  const path: Item[] = state.selected
    ? [...state.path(state.selected), state.selected]
    : [state.tree.root];
  const shown = path.length > 4 ? [path[0], ...path.slice(-3)] : path;
  return shown.flatMap((item, index): Node[] => {
    if (!item) return [];
    const text = shorten(nameOf(item), 48);
    const last = index === shown.length - 1;
    if (last) return [h('b', {}, text)];
    return [
      link(text, () => select(item)),
      h('span', {}, index === 0 && path.length > 4 ? ' › … › ' : ' › '),
    ];
  });
}
