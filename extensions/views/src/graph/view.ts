/**
 * The graph view: what autograd recorded for one loss, as boxes of modules that open and close.
 * `mount` wires the parts together; each part is a file of its own.
 */
import type { Dispose, Store } from '../store';
import { h } from './dom';
import { shorten } from './format';
import type { Group, Item } from './groups';
import { inspect } from './inspector';
import { handleKey } from './keyboard';
import type { Box } from './layout';
import { showLegend } from './legend';
import { minimap } from './minimap';
import type { GraphColumns } from './operations';
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

const ROOM_FOR_LEGEND = 860;
const NARROW = 700;
const MEDIUM = 1150;

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
  private panels = { tree: true, inspector: true };
  private readonly cleanup: (() => void)[] = [];
  private readonly surface: Surface;
  private readonly main = h('div', { class: 'wv-main' });
  private readonly legend = h('details', { class: 'wv-legend', open: true });
  private readonly message = h('div', { class: 'wv-message', hidden: true });
  private readonly grid = h('div', { class: 'wv-table', hidden: true });
  private readonly live = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });
  private readonly inspector = h('aside', { class: 'wv-inspector', 'aria-label': 'Details' });
  private readonly map = minimap((x, y) => this.centre(x, y));
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
    tree: () => this.setPanels({ tree: !this.panels.tree }),
    inspector: () => this.setPanels({ inspector: !this.panels.inspector }),
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
    this.main.append(this.surface.element, this.legend, this.grid, this.message);
    const body = h('div', { class: 'wv-body' }, this.tree.element, this.main, this.inspector);
    this.element.append(h('style', {}, STYLE), this.bar.element, body, this.live);
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
    if (item && this.element.dataset['size'] === 'medium') this.setPanels({ inspector: true });
    const box = state.box(item);
    if (box && item !== state.tree.root) this.bringIntoView(box, reveal);
    if (item) this.live.textContent = describe(state, item);
    this.refresh();
  }

  /** Moves the camera to a box that is out of view or, in a small view, under the inspector. */
  private bringIntoView(box: Box, reveal: boolean): void {
    const { camera } = this.surface;
    const { x, width } = box.node;
    const over = this.element.dataset['size'] === 'wide' ? 0 : this.inspector.offsetWidth;
    const right = (x + width - camera.x) * camera.zoom;
    const covered = Math.max(0, right + 16 - (camera.width - over));
    if (!reveal && (covered === 0 || box.open)) return;
    this.surface.animate((view) => {
      if (reveal && view.zoom < 0.6) view.zoomAt(0.9 / view.zoom);
      if (reveal) view.reveal({ x, y: box.y, width, height: box.height }, 40, over);
      else view.pan(-covered, 0);
    });
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

  private centre(x: number, y: number): void {
    const { camera } = this.surface;
    camera.x = x - camera.width / camera.zoom / 2;
    camera.y = y - camera.height / camera.zoom / 2;
    this.drawAround();
    this.surface.redraw();
  }

  private setPanels(change: { tree?: boolean; inspector?: boolean }): void {
    this.panels = { ...this.panels, ...change };
    this.tree.element.hidden = !this.panels.tree || !this.state;
    this.inspector.hidden = !this.panels.inspector || !this.state;
    this.bar.panels(this.panels.tree, this.panels.inspector);
  }

  private resize(): void {
    const width = this.element.clientWidth || 1000;
    const size = width < NARROW ? 'narrow' : width < MEDIUM ? 'medium' : 'wide';
    if (this.element.dataset['size'] !== size) {
      this.element.dataset['size'] = size;
      this.setPanels({ tree: size !== 'narrow', inspector: size === 'wide' });
      // open only beside the drawing's trunk, never over it
      this.legend.open = this.main.clientWidth >= ROOM_FOR_LEGEND;
    }
    const before = this.surface.camera.width;
    this.surface.resize(this.main.clientWidth, this.main.clientHeight);
    // The first real size: only now can the opening view be chosen.
    if (before <= 1 && this.state) this.openCamera();
    this.drawAround();
  }

  private openCamera(): void {
    const root = this.state?.layout.root;
    if (root) this.surface.camera.open(root, root.axis);
  }

  private retheme(): void {
    this.palette = readPalette(this.element);
    this.surface.show(this.state, this.palette);
    this.refresh();
  }

  private update(): void {
    const { record, error } = this.store.get();
    let problem = error;
    if (record !== this.shown) {
      this.shown = record;
      try {
        this.state = record ? new GraphState(record, this.options.visibleLimit) : null;
      } catch (reason) {
        this.state = null;
        problem = `This record cannot be drawn: ${String(reason)}`;
      }
      if (this.state) {
        this.tree.show(this.state);
        // The side panels appear with the first record, and what is left decides the first look.
        this.setPanels({});
        this.resize();
        this.openCamera();
      }
      this.surface.show(this.state, this.palette);
    }
    this.setPanels({});
    showMessage(this.message, problem, this.state !== null);
    this.refresh();
  }

  /** Everything that depends on the selection, the colouring or what is open. */
  private refresh(): void {
    const { state } = this;
    this.bar.update(state, this.table, this.found);
    this.legend.hidden = !state || this.table;
    this.grid.hidden = !state || !this.table;
    if (state) {
      inspect(
        this.inspector,
        state,
        (item) => this.select(item, true),
        (group) => this.toggle(group),
      );
      this.tree.update();
      showLegend(this.legend, state, this.palette);
      if (this.table)
        showTable(
          this.grid,
          state,
          (item) => this.select(item, false),
          (group) => this.toggle(group),
        );
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
