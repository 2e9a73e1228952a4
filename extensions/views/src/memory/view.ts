/**
 * The memory view: live bytes over a recording, where blocks are in the allocator, and what holds
 * them.
 */
import { button, h } from '../graph/dom';
import { follow, newSize } from '../graph/follow';
import { formatBytes, formatCount, shorten } from '../graph/format';
import type { Slots } from '../graph/mount';
import type { Palette } from '../graph/theme';
import { perFrame } from '../dom';
import type { Dispose, Store } from '../store';
import { Chart } from './chart';
import { Faces } from './faces';
import { hasFlame } from './callers';
import { inspect } from './details';
import { handleKey } from './keyboard';
import { Keys } from './keys';
import { Model, type Within } from './model';
import type { MemoryViewState } from './mount';
import type { Parts } from './part';
import { peakSentence, titleOf } from './sentence';
import { timeAt, type MemoryColumns } from './series';
import { SplitBar } from './split-bar';
import { showMessage } from './status';
import { STYLE } from './style';
import { Toolbar, type Face } from './toolbar';
import { WhatIf } from './what-if';

/** Pixels of height from which there is room for what is not always looked at. */
const ROOMY = 860;

/** Everything on screen and what it does; `keyboard.ts` calls the public part. */
export class MemoryView {
  readonly element = h('div', { class: 'wv-view wv-memory' });
  model: Model | null = null;
  selected: number | null = null;
  private record: MemoryColumns | null = null;
  /** Null, and nothing drawn, until the view is in the page. */
  private palette: Palette | null = null;
  private end: Dispose = () => {};
  private readonly sentence = h('p', { class: 'wv-peak' });
  private readonly keys = new Keys((category) => this.toggle(category));
  private readonly main = h('div', { class: 'wv-main' });
  private readonly inspector = h('aside', { class: 'wv-inspector', 'aria-label': 'Details' });
  private readonly message = h('div', { class: 'wv-message', hidden: true });
  private readonly spoken = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });
  readonly bar: Toolbar;
  private readonly faces: Faces;
  private readonly narrowed = h('span', { class: 'wv-only', hidden: true });
  private readonly split = new SplitBar(() => this.refresh());
  readonly whatIf: WhatIf;
  private readonly next = perFrame(() => this.draw(true));
  readonly chart = new Chart({
    scrub: (position) => this.scrub(position),
    hover: (position) => this.hover(position),
    range: (from, to) => this.range(from, to),
  });

  constructor(
    private readonly store: Store<MemoryViewState, never>,
    slots: Slots,
    parts: Parts,
  ) {
    this.bar = new Toolbar(this, slots);
    this.faces = new Faces((block) => this.select(block), parts.flame, {
      only: (within) => this.only(within),
      redraw: () => this.draw(),
      say: (text) => (this.spoken.textContent = text),
    });
    this.whatIf = new WhatIf(parts.whatIf, {
      failure: (failure) => this.look((model) => (model.view.failure = failure)),
      goTo: (event) => this.scrub(event),
    });
    const over = h(
      'div',
      { class: 'wv-over' },
      this.sentence,
      this.narrowed,
      this.bar.axis.element,
    );
    this.main.append(over, this.keys.element, this.chart.element, ...this.faces.elements);
    this.main.append(this.split.element, this.whatIf.element);
    const body = h('div', { class: 'wv-body' }, this.main, this.inspector, this.message);
    this.element.append(h('style', {}, STYLE), this.bar.element, body, this.spoken);
  }

  start(): void {
    this.end = follow(this.element, this.main, this.store, {
      key: (event) => handleKey(this, event),
      theme: (palette) => {
        this.palette = palette;
        this.drawAll();
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
    this.chart.dispose();
    this.faces.dispose();
    this.whatIf.dispose();
    this.element.remove();
  }

  private update(): void {
    const { record, error, ask = null } = this.store.get();
    let problem = error;
    if (record !== this.record) {
      this.record = record;
      this.selected = null;
      try {
        this.open(record);
      } catch (reason) {
        this.model = null;
        problem = `This record cannot be drawn: ${String(reason)}`;
      }
    }
    const drawn = this.model !== null;
    if (this.model) this.whatIf.open(this.model, ask, this.element.clientHeight >= ROOMY);
    this.main.style.visibility = drawn ? '' : 'hidden';
    showMessage(this.message, problem, this.record, drawn);
    this.setDetails(!this.inspector.hidden);
    this.drawAll();
  }

  private open(record: MemoryColumns | null): void {
    this.model = record && record.event_time_us.length > 0 ? new Model(record) : null;
    const { model } = this;
    if (!record || !model) return;
    this.keys.open(model.series);
    this.bar.open(model);
    this.bar.title.textContent = titleOf(record);
    this.sentence.textContent = peakSentence(record, model.series);
    this.faces.open(model);
    this.only(null);
    const lost = this.face === 'flame' && !hasFlame(record);
    this.show(lost || (model.hasSegments && this.face === 'holders') ? 'map' : this.face);
  }

  /** What stands below the chart; without segments that is who holds memory, or the table. */
  show(face: Face): void {
    const segments = this.model?.hasSegments ?? false;
    this.faces.set(face, segments);
    this.bar.faces.set(this.face);
    this.split.element.hidden = !segments;
    this.main.classList.toggle('wv-plain', !segments);
    this.draw();
  }

  get face(): Face {
    return this.faces.current;
  }

  /** Shows a module in the graph beside this recording, where the host knows of one. */
  get openModule(): ((path: string) => void) | null {
    return this.store.get().openModule ?? null;
  }

  get flame(): Faces['flame'] {
    return this.faces.flame;
  }

  get map(): Faces['map'] {
    return this.faces.map;
  }

  /** Changes what is looked at, and draws it. */
  look(change: (model: Model) => void): void {
    if (this.model) change(this.model);
    this.drawAll();
  }

  private toggle(category: number): void {
    this.look((model) => {
      if (!model.hidden.delete(category)) model.hidden.add(category);
      model.filter(model.query);
    });
  }

  /** Narrows chart, map and tables to some blocks; null ends it. */
  only(within: Within | null): void {
    this.narrowed.hidden = within === null;
    const end = button('×', () => this.only(null), { 'aria-label': 'Show all blocks again' });
    this.narrowed.replaceChildren(`Only below ${shorten(within?.label ?? '', 60)}`, end);
    if (!this.model || this.model.within === within) return;
    this.look((model) => {
      model.within = within;
      model.filter(model.query);
    });
  }

  scrub(position: number): void {
    const { model } = this;
    if (!model) return;
    model.scrub(position);
    const { scrubber } = model.view;
    const bytes = formatBytes(model.series.total[scrubber] ?? 0);
    const time = timeAt(model.record, scrubber).toFixed(1);
    this.spoken.textContent = `event ${formatCount(scrubber)}, ${time} milliseconds, ${bytes}`;
    this.refresh();
  }

  private hover(position: number | null): void {
    if (!this.model || this.model.view.hover === position) return;
    this.model.view.hover = position;
    this.showKeys();
    this.chart.redraw();
  }

  range(from: number, to: number): void {
    this.model?.range(from, to);
    this.chart.redraw();
    if (this.face === 'flame') this.refresh();
  }

  toPeak(): void {
    if (this.record) this.scrub(this.record.peak_event + 1);
  }

  select(block: number | null): void {
    this.selected = this.selected === block ? null : block;
    if (this.selected !== null) this.setDetails(true);
    this.draw();
  }

  /** Shows what a prediction stands on, and why it may be off. */
  toPrediction(): void {
    this.selected = null;
    this.setDetails(true);
    this.draw();
    this.inspector.querySelector('.wv-prediction')?.scrollIntoView?.({ block: 'nearest' });
  }

  setDetails(shown: boolean): void {
    const before = this.inspector.hidden;
    this.inspector.hidden = !shown || this.model === null;
    if (before && !this.inspector.hidden) this.refresh();
    this.bar.details.setAttribute('aria-pressed', String(!this.inspector.hidden));
  }

  /** Draws what follows the scrubber, once per frame. */
  private refresh(): void {
    this.next.request();
  }

  /** Shows the scrubber's moment now: what acts on it does not wait for the next frame. */
  settle(): void {
    this.next.now();
  }

  private draw(moving = false): void {
    const { model, palette } = this;
    if (!model) return;
    this.showKeys();
    this.chart.redraw();
    this.faces.show(model, palette, this.selected, moving);
    if (palette && model.hasSegments) {
      const { record } = model;
      const at = this.split.moment === 'peak' ? record.peak_event + 1 : model.view.scrubber;
      this.split.show(record, model.moment(at).split, model.view.scrubber, palette);
    }
    if (!this.inspector.hidden) inspect(this.inspector, model, this);
  }

  /** The legend: bytes under the pointer, else at the scrubber. */
  private showKeys(): void {
    const { model } = this;
    if (model) this.keys.show(model.series, model.view.hover ?? model.view.scrubber, model.hidden);
  }

  private resize(): void {
    const size = newSize(this.element);
    if (size) this.setDetails(size === 'wide');
    this.drawAll();
  }

  private drawAll(): void {
    if (this.palette) this.chart.show(this.model?.view ?? null, this.palette);
    this.draw();
  }
}
