/** The graph view as a whole: its parts, and what each of them needs from the others. */
import type { Dispose, Store } from '../store';
import { showLit, showNonFinite } from './banner';
import type { GraphColumns } from './columns';
import { h } from './dom';
import type { Drawing } from './drawing';
import type { Controls, Face } from './face';
import { shorten } from './format';
import type { Group, Item } from './groups';
import { inspect } from './inspector';
import { Finder } from './finder';
import { FirstLook } from './first-look';
import { follow } from './follow';
import { handleKey } from './keyboard';
import { minimap } from './minimap';
import type { GraphViewOptions, GraphViewState } from './mount';
import { Panels } from './panels';
import type { Shown } from './picture';
import { showMessage } from './status';
import { Surface } from './surface';
import { showTable } from './table';
import type { Palette } from './theme';
import { toolbar, type Toolbar } from './toolbar';
import { treePanel, type TreePanel } from './tree-panel';

/** Everything on screen and what it does; `keyboard.ts` calls the public part. */
export class GraphView<S extends Drawing> {
  readonly element = h('div', {});
  state: S | null = null;
  table = false;
  readonly canvas: HTMLCanvasElement;
  #shown: GraphColumns | null = null;
  /** Null, and nothing drawn, until the view is in the page. */
  #palette: Palette | null = null;
  #end: Dispose = () => {};
  readonly #surface: Surface;
  readonly #panels: Panels;
  readonly #look: FirstLook;
  readonly #banner = h('div', { class: 'wv-banner', role: 'alert', hidden: true });
  readonly #lit = h('div', { class: 'wv-lit', hidden: true });
  readonly #main = h('div', 'wv-main');
  readonly #legend = h('details', { class: 'wv-legend', open: true });
  readonly #message = h('div', { class: 'wv-message', hidden: true });
  readonly #grid = h('div', { class: 'wv-table', hidden: true });
  readonly #live = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });
  readonly #inspector = h('aside', { class: 'wv-inspector', 'aria-label': 'Details' });
  readonly #map = minimap((x, y) => this.#surface.centre(x, y));
  readonly #tree: TreePanel<S>;
  readonly #own: Controls<S>;
  readonly #bar: Toolbar;

  readonly finder = new Finder({
    field: () => this.#bar.search,
    state: () => this.state,
    select: (item) => this.select(item, true),
    refresh: () => this.refresh(),
  });

  constructor(
    private readonly store: Store<GraphViewState, never>,
    private readonly options: GraphViewOptions,
    readonly face: Face<S>,
  ) {
    this.element.className = `wv-view ${face.classes}`;
    this.#tree = treePanel(face.tree, this.#map.element, this.show, this.toggle);
    this.#own = face.controls(this);
    const { lead = [], tail = [], foot } = options.slots ?? {};
    this.#bar = toolbar(this, { lead, middle: this.#own.bar, tail });
    this.#surface = new Surface(
      {
        select: (box) => this.select(box?.item ?? null, false),
        toggle: (box) => this.toggle(box.item as Group),
        moved: () => {
          this.#look.take();
          this.#drawAround();
        },
      },
      face.label,
    );
    this.canvas = this.#surface.element;
    this.#main.append(this.canvas, this.#legend, this.#lit, ...this.#own.over);
    this.#main.append(this.#grid, this.#message);
    const body = h('div', 'wv-body', this.#tree.element, this.#main, this.#inspector);
    this.element.append(h('style', {}, face.style), this.#bar.element, ...this.#own.below);
    this.element.append(this.#banner, body, ...(foot ? [foot] : []), this.#live);
    this.#panels = new Panels({
      view: this.element,
      main: this.#main,
      tree: this.#tree.element,
      inspector: this.#inspector,
      changed: (tree, inspector) => this.#bar.panels(tree, inspector),
    });
    this.#look = new FirstLook(this.#surface, this.#legend, () => this.#panels.roomy);
  }

  /** What a picture of the view is made of; null while nothing is drawn. */
  get shown(): Shown | null {
    const [state, palette, legend] = [this.state, this.#palette, this.#legend];
    return state && palette && { state, palette, camera: this.#surface.camera, legend };
  }

  start(): void {
    this.#end = follow(this.element, this.#main, this.store, {
      key: (event) => handleKey(this, event),
      theme: (palette) => this.#retheme(palette),
      update: () => this.#update(),
      resize: () => this.#resize(),
    });
    this.#resize();
    this.#update();
  }

  dispose(): void {
    this.#end();
    this.#surface.dispose();
    this.element.remove();
  }

  select(item: Item | null, reveal: boolean): void {
    const { state } = this;
    if (!state) return;
    state.select(item);
    this.#look.take();
    if (item) this.#panels.selected();
    const box = state.box(item);
    if (box && item !== state.tree.root) this.#look.show(box, reveal, this.#panels.covered);
    this.refresh(item ? this.face.describe(state, item) : undefined);
  }

  /** Selects an item and brings it into view. */
  readonly show = (item: Item | null): void => this.select(item, true);

  readonly toggle = (group: Group): void => {
    const { state } = this;
    if (!state) return;
    const before = state.box(group);
    state.toggle(group);
    this.#look.take();
    this.#surface.follow(before, state.box(group));
    this.#look.giveWay(false);
    this.refresh(`${shorten(group.title, 80)} ${state.open.has(group) ? 'opened' : 'closed'}`);
  };

  /** Lights everything again. */
  unlight(): void {
    if (this.state) this.state.highlight = null;
    this.refresh();
  }

  /** Brings what was lit into view. */
  showLit({ layout, highlight }: S): void {
    const lit = [...layout.boxes.values()].filter((box) => !box.open && highlight?.has(box.item));
    this.#look.showLit(lit, this.#panels.covered);
  }

  readonly zoom = (by: number): void => this.#surface.animate((camera) => camera.zoomAt(by));

  readonly fit = (): void => this.#surface.fit(this.#panels.covered, this.#look);

  toggleTable(): void {
    this.table = !this.table;
    this.refresh();
    const row = this.#grid.querySelector<HTMLElement>('tbody tr');
    (this.table ? row : this.canvas)?.focus();
  }

  readonly togglePanel = (panel: 'tree' | 'inspector'): void => this.#panels.toggle(panel);

  #resize(): void {
    // Out of sight, in a tab behind or a cell far away: everything stays as it was.
    if (this.#surface.camera.width > 1 && this.#main.clientWidth === 0) return;
    this.#panels.resize();
    this.#bar.measure();
    this.#surface.resize(this.#main.clientWidth, this.#main.clientHeight);
    this.#look.choose();
    this.#drawAround();
  }

  #retheme(palette: Palette): void {
    this.#palette = palette;
    this.#surface.use(this.state, this.#palette);
    this.#resize(); // the pixels may be others, too
    this.refresh();
  }

  #update(): void {
    const { record, error, colours = null } = this.store.get();
    let problem = error;
    if (record !== this.#shown) {
      this.#shown = record;
      try {
        this.use(record && this.face.open(record, this.options.visibleLimit, this.state));
      } catch (reason) {
        this.use(null);
        problem = `This record cannot be drawn: ${String(reason)}`;
      }
    }
    if (this.state) this.face.colour?.(this.state, colours);
    this.#panels.fill(this.state !== null);
    showMessage(this.#message, problem, this.state !== null, this.face.empty);
    this.refresh();
  }

  /** Shows another state, from its own first look on where it is not drawn as the one before. */
  use(state: S | null): void {
    const before = this.state?.layout.root;
    this.state = state;
    this.#surface.use(state, this.#palette);
    if (!state) return;
    this.#tree.show(state);
    // The side panels appear with the first record, and what is left decides the first look.
    this.#panels.fill(true);
    this.#resize();
    const { root } = state.layout;
    if (before?.width !== root.width || before.height !== root.height) this.#look.begin();
  }

  /** Everything that depends on the selection, the colouring or what is open. */
  refresh(said?: string): void {
    const { state, face } = this;
    if (said !== undefined) this.#live.textContent = said;
    this.#own.update(state);
    this.#bar.update(state, this.table, this.finder.at);
    this.#legend.hidden = !state || this.table;
    this.#grid.hidden = !state || !this.table;
    showNonFinite(this.#banner, state, this.show, face.badKey);
    showLit(this.#lit, state, () => this.unlight());
    if (state) {
      inspect(this.#inspector, face.inspect(this, state));
      this.#tree.update();
      if (this.#palette) face.legend(this.#legend, state, this.#palette);
      this.#look.filled();
      const pick = (item: Item): void => this.select(item, false);
      if (this.table) showTable(this.#grid, state, face.columns(state), pick, this.toggle);
    }
    this.#drawAround();
    this.#surface.redraw();
  }

  #drawAround(): void {
    const { camera } = this.#surface;
    this.#bar.showZoom(camera.zoom);
    this.#map.draw(this.table ? null : this.state, camera, this.#palette);
  }
}
