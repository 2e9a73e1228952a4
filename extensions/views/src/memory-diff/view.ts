/** The diff of two memory records: both timelines on one scale, and whose bytes differ at the peaks. */
import { perFrame } from '../dom';
import { h } from '../graph/dom';
import { follow, newSize } from '../graph/follow';
import { shorten } from '../graph/format';
import type { Slots } from '../graph/mount';
import type { Palette } from '../graph/theme';
import { CATEGORIES } from '../memory/series';
import { swatch } from '../memory/tables';
import type { Dispose, Store } from '../store';
import { Charts } from './charts';
import { showDetails } from './details';
import { handleKey } from './keyboard';
import { ChangeList } from './list';
import type { MemoryDiffState } from './mount';
import type { By } from './naming';
import { Pair } from './pair';
import { phasesTable } from './phases';
import { STYLE } from './style';
import { Toolbar } from './toolbar';
import { GROUPINGS, spoken } from './words';

const MEDIUM = 1100;
/** Of the height that there is, what a chart takes; pixels at least and at most. */
const CHART = { share: 0.23, least: 112, most: 260 };
const EMPTY = 'Nothing to compare yet.';

export class MemoryDiffView {
  readonly element = h('div', { class: 'wv-view wv-memory-diff' });
  pair: Pair | null = null;
  isTable = false;
  private swapped = false;
  private state: MemoryDiffState | null = null;
  /** Null, and nothing drawn, until the view is in the page. */
  private palette: Palette | null = null;
  private end: Dispose = () => {};
  private readonly sentence = h('p', { class: 'wv-peak' });
  private readonly keys = h('div', { class: 'wv-keys', role: 'list', 'aria-label': 'Categories' });
  private readonly phases = h('div', { class: 'wv-tables', hidden: true });
  private readonly inspector = h('aside', { class: 'wv-inspector', 'aria-label': 'Details' });
  private readonly message = h('div', { class: 'wv-message', hidden: true });
  private readonly spoken = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });
  private readonly charts = new Charts((text) => this.say(text));
  private readonly main: HTMLElement;
  private readonly next = perFrame(() => this.draw());
  readonly bar: Toolbar;
  readonly list = new ChangeList({
    select: (what) => this.select(what),
    same: (shown) => this.look((pair) => (pair.showSame = shown)),
  });

  constructor(
    private readonly store: Store<MemoryDiffState, never>,
    slots: Slots,
  ) {
    const events = {
      group: (by: By) => this.group(by),
      filter: (query: string) => this.look((pair) => (pair.query = query)),
      swap: () => this.swap(),
      table: () => this.setTable(!this.isTable),
      details: () => this.setDetails(!this.hasDetails),
    };
    this.bar = new Toolbar(events, slots);
    const over = h('div', { class: 'wv-over' }, this.sentence, this.keys);
    this.main = h('div', { class: 'wv-main' }, over, this.charts.element, this.phases);
    this.main.append(this.list.element);
    const body = h('div', { class: 'wv-body' }, this.main, this.inspector, this.message);
    this.element.append(h('style', {}, STYLE), this.bar.element, body, this.spoken);
  }

  start(): void {
    this.end = follow(this.element, this.main, this.store, {
      key: (event) => handleKey(this, event),
      theme: (palette) => {
        this.palette = palette;
        this.drawCharts();
      },
      update: () => this.update(),
      resize: () => this.resize(),
    });
    this.update();
    this.resize();
  }

  dispose(): void {
    this.end();
    this.next.cancel();
    this.charts.dispose();
    this.element.remove();
  }

  get hasDetails(): boolean {
    return !this.inspector.hidden;
  }

  /** Changes what is looked at, and draws it. */
  look(change: (pair: Pair) => void): void {
    if (this.pair) change(this.pair);
    this.next.request();
  }

  group(by: By): void {
    this.look((pair) => pair.group(by));
    this.drawCharts();
    this.say(`By ${GROUPINGS[by].one}`);
  }

  /** Lights a group in both timelines; null lights none. */
  select(what: string | null): void {
    const { pair } = this;
    if (!pair) return;
    pair.select(what);
    this.list.mark(what);
    if (what !== null && this.element.dataset['size'] === 'wide') this.setDetails(true);
    if (pair.chosen) this.say(spoken(pair.chosen));
    this.drawCharts();
    this.drawDetails();
  }

  /** Reads it the other way round, and notifies the host, which saves what is shown. */
  swap(): void {
    this.swapped = !this.swapped;
    this.open();
    const init = { detail: { swapped: this.swapped }, bubbles: true, composed: true };
    this.element.dispatchEvent(new CustomEvent('workbench:swap', init));
    this.say('A and B are swapped');
  }

  setTable(shown: boolean): void {
    this.isTable = shown;
    this.charts.element.hidden = shown;
    this.phases.hidden = !shown;
    this.next.request();
    this.drawCharts();
  }

  setDetails(shown: boolean): void {
    this.inspector.hidden = !shown || this.pair === null;
    this.next.request();
  }

  private update(): void {
    const state = this.store.get();
    if (state !== this.state) {
      this.state = state;
      this.open();
    }
  }

  /** Reads the two records anew, and keeps how they were looked at. */
  private open(): void {
    const before = this.pair;
    let problem = this.state?.error ?? null;
    try {
      this.pair = this.read(before);
    } catch (reason) {
      this.pair = null;
      problem = `These records cannot be compared: ${String(reason)}`;
    }
    const { pair } = this;
    this.main.style.visibility = pair ? '' : 'hidden';
    this.message.hidden = pair !== null && problem === null;
    this.message.replaceChildren(problem === null ? h('p', {}, EMPTY) : errorBox(problem));
    this.setDetails(this.element.dataset['size'] === 'wide' || this.hasDetails);
    if (pair) this.fill(pair);
    this.draw();
    this.drawCharts();
  }

  private read(before: Pair | null): Pair | null {
    const { a, b } = this.state ?? {};
    if (!a || !b) return null;
    const pair = this.swapped ? new Pair(b, a) : new Pair(a, b);
    if (before) {
      pair.by = before.by;
      pair.query = before.query;
      pair.showSame = before.showSame;
      if (pair.changes().some(({ what }) => what === before.selected)) pair.select(before.selected);
    }
    return pair;
  }

  private fill(pair: Pair): void {
    const names = this.state?.names;
    this.charts.open(pair, names && this.swapped ? [names[1], names[0]] : names);
    this.sentence.textContent = shorten(pair.sentence, 400);
    this.keys.replaceChildren(...legend(pair));
    this.phases.replaceChildren(phasesTable(pair));
  }

  private draw(): void {
    const { pair } = this;
    if (!pair) return;
    this.bar.show(pair.by, this.isTable, this.hasDetails);
    this.list.show(pair);
    this.drawDetails();
  }

  private drawDetails(): void {
    if (this.pair && this.hasDetails)
      showDetails(this.inspector, this.pair, () => this.select(null));
  }

  private drawCharts(): void {
    this.charts.show(this.pair, this.palette);
  }

  private say(text: string): void {
    this.spoken.textContent = text;
  }

  private resize(): void {
    const size = newSize(this.element, MEDIUM, 1200);
    if (size) this.setDetails(size === 'wide');
    const chart = this.main.clientHeight * CHART.share;
    const height = Math.round(Math.min(CHART.most, Math.max(CHART.least, chart)));
    this.main.style.setProperty('--wb-chart', `${height}px`);
    this.drawCharts();
  }
}

function errorBox(problem: string): HTMLElement {
  const title = h('b', {}, 'The memory diff could not be shown');
  return h('div', { class: 'wv-error', role: 'alert' }, title, shorten(problem, 2000));
}

/** The categories that occur in one of them, and what is reserved where an allocator reserves. */
function legend({ a, b }: Pair): HTMLElement[] {
  const sides = [a.series, b.series];
  const found = CATEGORIES.map((_, category) => category)
    .filter((category) => sides.some(({ live }) => live[category] != null))
    .map((category) => h('span', { role: 'listitem' }, swatch(category)));
  if (sides.some(({ reserved }) => reserved !== null))
    found.push(h('span', { role: 'listitem', class: 'wv-free' }, 'free, reserved'));
  return found;
}
