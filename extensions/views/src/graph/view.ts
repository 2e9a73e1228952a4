/**
 * The graph view: what autograd recorded for one loss, as boxes of modules that open and close.
 * `mount` wires the parts together; each part is a file of its own.
 */
import type { Dispose, Store } from '../store';
import { showLit, showNonFinite } from './banner';
import type { GraphColumns } from './columns';
import { h } from './dom';
import { shorten } from './format';
import type { Group, Item } from './groups';
import type { HighlightKind } from './highlight';
import { inspect } from './inspector';
import { handleKey } from './keyboard';
import { showLegend } from './legend';
import { minimap } from './minimap';
import { Panels } from './panels';
import { GraphState } from './state';
import { STYLE } from './style';
import { describe, showMessage } from './status';
import { Surface } from './surface';
import { showTable } from './table';
import { followTheme, readPalette, type Palette } from './theme';
import { toolbar } from './toolbar';
import { treePanel } from './tree-panel';

/** What the view shows; `error` is one sentence, shown beside what still works. */
export interface GraphViewState {
  readonly record: GraphColumns | null;
  readonly error: string | null;
}

export interface GraphViewOptions {
  /** More visible nodes than this and the smallest modules start collapsed. */
  visibleLimit?: number;
}

/** Pixels that the open legend takes at the right of the drawing. */
const LEGEND = 292;

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<GraphViewState, never>,
  options: GraphViewOptions = {},
): Dispose {
  const view = new GraphView(store, options);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}

/** Everything on screen and what it does; `keyboard.ts` calls the public part. */
export class GraphView {
  readonly element = h('div', { class: 'wv-view wv-graph' });
  state: GraphState | null = null;
  table = false;
  private shown: GraphColumns | null = null;
  private palette: Palette;
  private found = 0;
  private readonly cleanup: (() => void)[] = [];
  private readonly surface: Surface;
  private readonly panels: Panels;
  private readonly banner = h('div', { class: 'wv-banner', role: 'alert', hidden: true });
  private readonly lit = h('div', { class: 'wv-lit', hidden: true });
  private readonly main = h('div', { class: 'wv-main' });
  private readonly legend = h('details', { class: 'wv-legend', open: true });
  private readonly message = h('div', { class: 'wv-message', hidden: true });
  private readonly grid = h('div', { class: 'wv-table', hidden: true });
  private readonly live = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });
  private readonly inspector = h('aside', { class: 'wv-inspector', 'aria-label': 'Details' });
  private readonly map = minimap((x, y) => this.surface.centre(x, y));
  private readonly tree = treePanel(this.map.element, (item) => this.select(item, true));
  private readonly bar = toolbar({
    select: (item) => this.select(item, true),
    colour: (value) => {
      if (this.state) this.state.colouring = value;
      this.refresh();
    },
    find: (query) => this.find(query),
    next: (backwards) => this.nextMatch(backwards),
    zoom: (factor) => this.zoom(factor),
    fit: () => this.fit(),
    table: () => this.toggleTable(),
    tree: () => this.panels.toggle('tree'),
    inspector: () => this.panels.toggle('inspector'),
  });

  constructor(
    private readonly store: Store<GraphViewState, never>,
    private readonly options: GraphViewOptions,
  ) {
    const label = 'Graph. Arrow keys follow the data, Enter opens or closes, T shows a table.';
    this.surface = new Surface(
      {
        select: (box) => this.select(box?.item ?? null, false),
        toggle: (box) => this.toggle(box.item as Group),
        moved: () => this.drawAround(),
      },
      label,
    );
    this.main.append(this.surface.element, this.legend, this.lit, this.grid, this.message);
    const body = h('div', { class: 'wv-body' }, this.tree.element, this.main, this.inspector);
    this.element.append(h('style', {}, STYLE), this.bar.element, this.banner, body, this.live);
    this.panels = new Panels({
      view: this.element,
      main: this.main,
      tree: this.tree.element,
      inspector: this.inspector,
      legend: this.legend,
      changed: (tree, inspector) => this.bar.panels(tree, inspector),
    });
    this.palette = readPalette(this.element);
  }

  start(): void {
    this.element.addEventListener('keydown', (event) => handleKey(this, event));
    this.cleanup.push(followTheme(this.element, () => this.retheme()));
    this.cleanup.push(this.store.subscribe(() => this.update()));
    if (typeof ResizeObserver === 'function') {
      const observer = new ResizeObserver(() => this.resize());
      observer.observe(this.element);
      observer.observe(this.main);
      this.cleanup.push(() => observer.disconnect());
    }
    this.resize();
    this.update();
  }

  dispose(): void {
    for (const end of this.cleanup) end();
    this.surface.dispose();
    this.element.remove();
  }

  get searchField(): HTMLInputElement {
    return this.bar.search;
  }

  get canvas(): HTMLCanvasElement {
    return this.surface.element;
  }

  select(item: Item | null, reveal: boolean): void {
    const { state } = this;
    if (!state) return;
    state.select(item);
    if (item) this.panels.selected();
    const box = state.box(item);
    if (box && item !== state.tree.root) this.surface.show(box, reveal, this.panels.covered);
    if (item) this.live.textContent = describe(state, item);
    this.refresh();
  }

  toggle(group: Group): void {
    const { state } = this;
    if (!state) return;
    const before = state.box(group);
    const anchor = before && { x: before.axis, y: before.y };
    state.toggle(group);
    const after = state.box(group);
    // What was clicked stays under the pointer.
    if (anchor && after) {
      this.surface.camera.x += after.axis - anchor.x;
      this.surface.camera.y += after.y - anchor.y;
    }
    this.live.textContent = `${shorten(group.title, 80)} ${state.open.has(group) ? 'opened' : 'closed'}`;
    this.refresh();
  }

  /** Lights the path or the holders of `item` (the selection), or with null nothing. */
  light(kind: HighlightKind | null, item = this.state?.selected ?? null): boolean {
    const { state } = this;
    if (!state || (kind !== null && !item)) return false;
    if (kind && item) state.light(kind, item);
    else state.highlight = null;
    this.refresh();
    this.live.textContent = this.lit.querySelector('.text')?.textContent ?? '';
    return true;
  }

  /** Selects the first node that made a value which is not finite. */
  showNonFinite(): boolean {
    const found = this.state?.record.non_finite;
    const operation = found ? this.state?.operationOf(found.node) : null;
    if (operation) this.select(operation, true);
    return Boolean(operation);
  }

  find(query: string): void {
    this.state?.search(query);
    this.found = -1;
    if (this.state?.matches.length) this.nextMatch(false);
    else this.refresh();
  }

  nextMatch(backwards: boolean): void {
    const count = this.state?.matches.length ?? 0;
    if (count === 0) return;
    this.found = (this.found + (backwards ? -1 : 1) + count) % count;
    this.select(this.state?.matches[this.found] ?? null, true);
  }

  clearSearch(): void {
    this.bar.search.value = '';
    this.find('');
  }

  zoom(factor: number): void {
    this.surface.animate((camera) => camera.zoomAt(factor));
  }

  fit(): void {
    const root = this.state?.layout.root;
    if (root) this.surface.animate((camera) => camera.fit(root));
  }

  toggleTable(): void {
    this.table = !this.table;
    this.refresh();
    if (this.table) this.grid.querySelector<HTMLElement>('tbody tr')?.focus();
    else this.surface.element.focus();
  }

  private resize(): void {
    this.panels.resize();
    const before = this.surface.camera.width;
    this.surface.resize(this.main.clientWidth, this.main.clientHeight);
    // The first real size: only now can the opening view be chosen.
    if (before <= 1) this.openCamera();
    this.drawAround();
  }

  /** The legend stays open only where the drawing leaves it room. */
  private openCamera(): void {
    const covered = this.legend.open ? LEGEND : 0;
    if (this.surface.camera.width > 1 && !this.surface.open(covered)) this.legend.open = false;
  }

  private retheme(): void {
    this.palette = readPalette(this.element);
    this.surface.use(this.state, this.palette);
    this.refresh();
  }

  private update(): void {
    const { record, error } = this.store.get();
    let problem = error;
    if (record !== this.shown) {
      this.shown = record;
      try {
        this.replace(record && new GraphState(record, this.options.visibleLimit));
      } catch (reason) {
        this.replace(null);
        problem = `This record cannot be drawn: ${String(reason)}`;
      }
    }
    this.panels.fill(this.state !== null);
    showMessage(this.message, problem, this.state !== null);
    this.refresh();
  }

  private replace(state: GraphState | null): void {
    const { colouring } = this.state ?? {};
    // The next capture is looked at in the same way, where it can be.
    if (state && colouring && !state.missing(colouring)) state.colouring = colouring;
    this.state = state;
    this.surface.use(state, this.palette);
    if (!state) return;
    this.tree.show(state);
    // The side panels appear with the first record, and what is left decides the first look.
    this.panels.fill(true);
    this.resize();
    this.openCamera();
  }

  /** Everything that depends on the selection, the colouring or what is open. */
  private refresh(): void {
    const { state } = this;
    const select = (item: Item): void => this.select(item, true);
    const toggle = (group: Group): void => this.toggle(group);
    this.bar.update(state, this.table, this.found);
    this.legend.hidden = !state || this.table;
    this.grid.hidden = !state || !this.table;
    showNonFinite(this.banner, state, select);
    showLit(this.lit, state, () => this.light(null));
    if (state) {
      const light = (kind: HighlightKind, item: Item): boolean => this.light(kind, item);
      inspect(this.inspector, { state, select, toggle, light });
      this.tree.update();
      showLegend(this.legend, state, this.palette);
      if (this.table) showTable(this.grid, state, (item) => this.select(item, false), toggle);
    }
    this.drawAround();
    this.surface.redraw();
  }

  private drawAround(): void {
    const { camera } = this.surface;
    this.bar.showZoom(camera.zoom);
    if (this.state && !this.table) this.map.draw(this.state, camera, this.palette);
    else this.map.element.hidden = true;
  }
}
