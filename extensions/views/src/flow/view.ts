/** The gradient-flow strip: modules by steps, colour by the norm of their gradients. */
import { button, h } from '../graph/dom';
import { formatCount, shorten } from '../graph/format';
import { followTheme } from '../graph/theme';
import type { Dispose, Store } from '../store';
import { StripCanvas } from './canvas';
import { handleKey } from './keyboard';
import { keyOf } from './key';
import type { Spot } from './paint';
import { cellOf, check, columnOf, type FlowColumns } from './strip';
import { STYLE } from './style';
import { flowTable } from './table';
import { cellText, stepsText } from './words';

/** What the view shows; `error` is one sentence. */
export interface FlowViewState {
  readonly record: FlowColumns | null;
  readonly error: string | null;
  /** Steps of which there is a capture: they are outlined. */
  readonly captured?: readonly number[];
}

/** Detail of the bubbling `workbench:step` event: a person wants to see this step. */
export interface StepDetail {
  readonly step: number;
  /** Path and label of the row. */
  readonly path: string;
  readonly label: string;
  readonly experiment: string | null;
}

const NARROW = 620;
const EMPTY = 'Nothing yet. Up to ten steps a second are sampled while the experiment trains.';

/** Mounts the strip into `el`; the returned function takes it out again. */
export function mount(el: HTMLElement, store: Store<FlowViewState, never>): Dispose {
  const view = new FlowView(store);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}

/** Everything on screen and what it does; `keyboard.ts` calls the public part. */
export class FlowView {
  readonly element = h('section', { class: 'wv-view wv-flow', 'aria-label': 'Gradient flow' });
  readonly drawing = new StripCanvas();
  private record: FlowColumns | null = null;
  private table = typeof matchMedia === 'function' && matchMedia('(forced-colors: active)').matches;
  /** The column that steps go from, and that the table shows. */
  private column = 0;
  private readonly cleanup: (() => void)[] = [];
  private readonly reading = h('span', { class: 'wv-read' });
  private readonly tableButton = button('Table', () => this.toggleTable(), {}, 'T');
  private readonly controls = [this.stepButton(-1), this.stepButton(1), this.tableButton];
  private readonly main = h('div', { class: 'wv-strip' }, this.drawing.element);
  private readonly body = h('div', { class: 'wv-flow-body' }, this.main);
  private readonly notes = h('p', { class: 'wv-notes', hidden: true });
  private readonly message = h('div', { class: 'wv-empty', hidden: true });
  private readonly live = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });

  constructor(private readonly store: Store<FlowViewState, never>) {
    const title = h('h2', {}, 'Gradient flow');
    const head = h('div', { class: 'wv-head' }, title, this.reading, ...this.controls);
    this.element.append(h('style', {}, STYLE), head, this.body, this.notes, this.message);
    this.element.append(this.live);
  }

  start(): void {
    const { element, drawing } = this;
    element.addEventListener('keydown', (event) => handleKey(this, event));
    drawing.element.addEventListener('pointermove', (event) =>
      this.setHover(drawing.spotAt(event)),
    );
    drawing.element.addEventListener('pointerleave', () => this.setHover(null));
    drawing.element.addEventListener('click', (event) => {
      const spot = drawing.spotAt(event);
      if (!spot) return;
      this.setCursor(spot);
      this.goToCursor();
    });
    this.cleanup.push(
      followTheme(element, (palette) => {
        drawing.palette = palette;
        this.resize();
      }),
      this.store.subscribe(() => this.update()),
    );
    if (typeof ResizeObserver === 'function') {
      const observer = new ResizeObserver(() => this.resize());
      observer.observe(this.main);
      this.cleanup.push(() => observer.disconnect());
    }
    this.update();
  }

  dispose(): void {
    for (const end of this.cleanup) end();
    this.drawing.dispose();
    this.element.remove();
  }

  private update(): void {
    const { record, error, captured = [] } = this.store.get();
    let problem = error;
    if (record !== this.record) {
      const step = this.record?.step[this.column];
      const newest = this.column >= (this.record?.step.length ?? 0) - 1;
      this.record = record;
      try {
        if (record) check(record);
      } catch (reason) {
        this.record = null;
        problem = `This record cannot be drawn: ${(reason as Error).message}`;
      }
      const last = Math.max(0, (this.record?.step.length ?? 0) - 1);
      const found = this.record && step !== undefined ? columnOf(this.record, step) : -1;
      this.column = newest && !this.drawing.cursor ? last : found < 0 ? last : found;
    }
    this.drawing.captured = captured;
    const drawn = this.record !== null && this.record.step.length > 0;
    this.body.hidden = !drawn;
    for (const control of this.controls) control.hidden = !drawn;
    this.message.hidden = drawn && problem === null;
    this.message.replaceChildren(problem === null ? EMPTY : errorCard(problem));
    const notes = this.record?.notes ?? [];
    this.notes.hidden = notes.length === 0;
    this.notes.textContent = notes.map((note) => shorten(note, 300)).join(' · ');
    this.showKey();
    this.resize();
  }

  private resize(): void {
    const { record, drawing } = this;
    if (!record) return;
    const whole = this.element.clientWidth || 1000;
    this.element.dataset['size'] = whole < NARROW ? 'narrow' : 'wide';
    const strip = drawing.fit(record, this.main.clientWidth || whole);
    const row = Math.min(drawing.cursor?.row ?? 0, strip.rows - 1);
    this.setCursor(drawing.cursor && row >= 0 ? { row, cell: cellOf(strip, this.column) } : null);
  }

  private stepButton(by: -1 | 1): HTMLButtonElement {
    const name = by < 0 ? 'Previous sampled step' : 'Next sampled step';
    const title = `${name}  ${by < 0 ? '[' : ']'}`;
    const attributes = { 'aria-label': name, title };
    return button(by < 0 ? '‹' : '›', () => this.moveStep(by), attributes);
  }

  private setHover(spot: Spot | null): void {
    this.drawing.hover = spot;
    this.read();
    this.drawing.draw();
  }

  setCursor(spot: Spot | null): void {
    const { strip } = this.drawing;
    this.drawing.cursor = spot;
    if (spot && strip && cellOf(strip, this.column) !== spot.cell)
      this.column = strip.peak[spot.row * strip.cells + spot.cell] ?? 0;
    this.read();
    this.showTable();
    this.drawing.draw();
  }

  /** Moves by rows and cells; the first key lands on the newest step. */
  moveCursor(rows: number, cells: number): void {
    const { strip, cursor } = this.drawing;
    if (!strip || !strip.cells) return;
    const within = (value: number, most: number): number => Math.max(0, Math.min(most, value));
    const row = within((cursor?.row ?? 0) + (cursor ? rows : 0), strip.rows - 1);
    const from = cursor?.cell ?? cellOf(strip, this.column);
    const jump = cursor || !Number.isFinite(cells) ? cells : 0;
    this.setCursor({ row, cell: within(from + jump, strip.cells - 1) });
    this.live.textContent = this.reading.textContent;
  }

  /** One sampled step back or on. */
  moveStep(by: number): void {
    const { strip, cursor } = this.drawing;
    if (!this.record || !strip || !strip.cells) return;
    this.column = Math.max(0, Math.min(this.record.step.length - 1, this.column + by));
    this.setCursor({ row: cursor?.row ?? 0, cell: cellOf(strip, this.column) });
    this.live.textContent = `step ${formatCount(this.record.step[this.column] ?? 0)}`;
  }

  /** Tells the page which step is wanted: within a cell the one with the largest norm. */
  goToCursor(): void {
    const { record, drawing } = this;
    const { strip, cursor } = drawing;
    if (!record || !strip || !cursor) return;
    const column = strip.peak[cursor.row * strip.cells + cursor.cell] ?? 0;
    const { path = '', label = '' } = record.rows[cursor.row] ?? {};
    const step = record.step[column] ?? 0;
    const detail: StepDetail = { step, path, label, experiment: record.experiment };
    const how = { bubbles: true, cancelable: true, composed: true };
    this.element.dispatchEvent(new CustomEvent('workbench:step', { detail, ...how }));
  }

  toggleTable(): void {
    this.table = !this.table;
    this.showTable();
    this.drawing.draw();
  }

  private showTable(): void {
    this.tableButton.setAttribute('aria-pressed', String(this.table));
    this.drawing.element.hidden = this.table;
    this.main.querySelector('.wv-norms')?.remove();
    if (!this.table || !this.record) return;
    this.main.append(h('div', { class: 'wv-norms' }, flowTable(this.record, this.column)));
  }

  private showKey(): void {
    this.body.querySelector('.wv-key')?.remove();
    const { captured } = this.drawing;
    if (this.record) this.body.append(keyOf(this.record, captured.length > 0));
  }

  private read(): void {
    const { strip, hover, cursor } = this.drawing;
    const { record } = this;
    const spot = hover ?? cursor;
    const about = record && `norm of all parameter gradients of a module, ${stepsText(record)}`;
    this.reading.dataset['on'] = String(spot !== null);
    this.reading.textContent =
      record && strip && spot ? cellText(record, strip, spot.row, spot.cell) : (about ?? '');
  }
}

function errorCard(text: string): HTMLElement {
  const title = h('b', {}, 'The gradient flow could not be shown');
  return h('div', { class: 'wv-card', role: 'alert' }, title, shorten(text, 2000));
}
