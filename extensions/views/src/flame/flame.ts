/**
 * The flame graph: which code allocated memory, call below call or module below module, as wide as
 * its bytes.
 */
import { choices, h, type Choices } from '../graph/dom';
import { formatBytes, formatCount, plural } from '../graph/format';
import type { Palette } from '../graph/theme';
import { FlameCanvas } from './canvas';
import { FlameHead } from './head';
import { Siblings } from './layout';
import { FlameSums, type When } from './sums';
import { FlameTable } from './table';
import { hasModules } from '../memory/callers';
import type { FlameEvents } from '../memory/flame-face';
import type { Model } from '../memory/model';
import { isLibrary, moduleTree, stackTree, type FlameTree, type Grouping } from './tree';

type Form = 'bars' | 'rows';
type Measure = 'live' | 'allocated';

export class Flame {
  readonly element = h('div', { class: 'wv-flameparts' });
  private readonly head: FlameHead;
  private readonly canvas: FlameCanvas;
  private readonly rows: FlameTable;
  private readonly none = h('p', { class: 'wv-note wv-none', hidden: true });
  private readonly groupings: Choices<Grouping>;
  private model: Model | null = null;
  private grouping: Grouping = 'stack';
  private measure: Measure = 'live';
  private form: Form = 'bars';
  private fold = true;
  private top = 0;
  private tree: FlameTree | null = null;
  private sums: FlameSums | null = null;
  private rank: Siblings | null = null;
  private read: unknown[] = [];

  constructor(private readonly events: FlameEvents) {
    const again = (): void => events.redraw();
    this.groupings = choices<Grouping>(
      'Bars are',
      [
        { value: 'stack', text: 'Stacks' },
        { value: 'module', text: 'Modules' },
      ],
      'stack',
      (grouping) => this.regroup(grouping, this.fold),
    );
    const measures = choices<Measure>(
      'Their width is',
      [
        { value: 'live', text: 'Live' },
        { value: 'allocated', text: 'Allocated in view' },
      ],
      'live',
      (measure) => {
        this.measure = measure;
        again();
      },
    );
    const forms = choices<Form>(
      'Shown as',
      [
        { value: 'bars', text: 'Bars' },
        { value: 'rows', text: 'Table' },
      ],
      'bars',
      (form) => {
        this.form = form;
        again();
      },
    );
    this.head = new FlameHead([this.groupings.element, measures.element, forms.element], {
      zoom: (node) => this.zoom(node),
      only: (node) => this.only(node),
      fold: (fold) => this.regroup(this.grouping, fold),
    });
    this.canvas = new FlameCanvas({ zoom: (node) => this.zoom(node), say: events.say });
    this.rows = new FlameTable((node) => this.zoom(node));
    this.element.append(this.head.element, this.none, this.canvas.element, this.rows.element);
  }

  dispose(): void {
    this.canvas.dispose();
  }

  show(model: Model, palette: Palette, block: number | null): void {
    if (this.model !== model) this.open(model);
    const tree = (this.tree ??= this.grow(model));
    const sums = this.sum(model, tree);
    const rank = this.rank;
    if (!rank) return;
    if ((sums.total[this.top] ?? 0) === 0 && (sums.total[0] ?? 0) > 0) this.top = 0;
    const empty = (sums.total[0] ?? 0) === 0;
    this.none.hidden = !empty;
    this.none.textContent = model.isFiltered
      ? 'No live block matches the filter at this moment.'
      : 'Nothing is held at this moment.';
    this.canvas.element.hidden = empty || this.form === 'rows';
    this.rows.element.hidden = empty || this.form === 'bars';
    this.head.show(tree, sums, this.top, this.said(model, sums));
    const state = { tree, sums, rank, top: this.top };
    if (this.form === 'rows') this.rows.show(state);
    else {
      const chosen = new Set(block === null ? [] : tree.path(tree.nodeOf(block)));
      this.canvas.show({ ...state, palette, chosen, found: this.matches(model, tree) });
    }
  }

  /** Leaves the part that fills the width; whether it had been entered. */
  back(): boolean {
    if (this.top === 0) return false;
    this.zoom(Math.max(0, this.tree?.parent[this.top] ?? 0));
    return true;
  }

  /** Carries out a key of the drawing. */
  key(event: KeyboardEvent): boolean {
    return this.canvas.key(event);
  }

  private open(model: Model): void {
    this.model = model;
    const { record } = model;
    const stacks = record.call_parent.length > 0;
    const modules = hasModules(record);
    this.grouping = stacks || !modules ? 'stack' : 'module';
    this.groupings.set(this.grouping);
    this.groupings.allow('stack', stacks ? '' : 'No stacks were recorded');
    this.groupings.allow('module', modules ? '' : 'A snapshot of the allocator knows no modules');
    this.head.library.hidden = !record.sources.some(({ filename }) => isLibrary(filename));
    this.forget();
  }

  private regroup(grouping: Grouping, fold: boolean): void {
    this.grouping = grouping;
    this.fold = fold;
    this.forget();
    this.events.redraw();
  }

  private forget(): void {
    this.tree = this.sums = this.rank = null;
    this.top = 0;
  }

  private grow(model: Model): FlameTree {
    const { record } = model;
    const stacks = this.grouping === 'stack';
    const tree = stacks ? stackTree(record, this.fold) : moduleTree(record);
    const peak = new FlameSums(tree);
    peak.read(model, () => true, { live: record.peak_event + 1 });
    this.rank = new Siblings(tree, peak.total);
    return tree;
  }

  /** Adds up anew only where something was moved or filtered. */
  private sum(model: Model, tree: FlameTree): FlameSums {
    const { scrubber, from, to } = model.view;
    const live = this.measure === 'live';
    const when: When = live ? { live: scrubber } : { from, to };
    const read = [tree, model.fits, live, ...(live ? [scrubber] : [from, to])];
    const sums = (this.sums ??= new FlameSums(tree));
    if (read.some((value, at) => value !== this.read[at])) sums.read(model, model.fits, when);
    this.read = read;
    return sums;
  }

  private said(model: Model, sums: FlameSums): string {
    const { view, record } = model;
    const held = `${formatBytes(sums.total[0] ?? 0)} in ${plural(sums.blocks[0] ?? 0, 'block')}`;
    if (this.measure === 'allocated')
      return `${held}, allocated by events ${formatCount(view.from)} to ${formatCount(view.to)}`;
    const peak = view.scrubber === record.peak_event + 1;
    return `${held}, live ${peak ? 'at the peak' : `after event ${formatCount(view.scrubber)}`}`;
  }

  /** Which nodes a search names; null without one. */
  private matches(model: Model, tree: FlameTree): ((node: number) => boolean) | null {
    const words = model.query
      .toLowerCase()
      .split(/\s+/)
      .map((word) => word.replace(/^stack:/, ''))
      .filter((word) => word && !/^[<>]\d/.test(word));
    if (words.length === 0) return null;
    return (node) => {
      const text = `${tree.name(node)} ${tree.place(node)}`.toLowerCase();
      return words.some((word) => text.includes(word));
    };
  }

  private zoom(node: number): void {
    this.top = node;
    const { tree, sums } = this;
    if (tree && sums)
      this.events.say(
        `${tree.name(node)} ${tree.place(node)}, ${formatBytes(sums.total[node] ?? 0)}`,
      );
    this.events.redraw();
  }

  private only(node: number): void {
    const { tree } = this;
    if (!tree) return;
    const label = `${tree.name(node)} ${tree.place(node)}`.trim();
    this.events.only(node === 0 ? null : { label, fits: tree.below(node) });
  }
}
