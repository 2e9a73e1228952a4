/** The gradient-flow strip: modules by steps, colour by the norm of their gradients. */
import { button, h } from '../graph/dom';
import { follow } from '../graph/follow';
import { formatCount, shorten } from '../graph/format';
import { FORCED, matching } from '../graph/theme';
import type { Dispose, Store } from '../store';
import { StripCanvas } from './canvas';
import { handleKey } from './keyboard';
import { keyOf } from './key';
import type { FlowViewOptions, FlowViewState, StepDetail } from './mount';
import type { Spot } from './paint';
import { followPointer } from './pointer';
import { cellOf, check, columnOf, type FlowColumns } from './strip';
import { STYLE } from './style';
import { flowTable } from './table';
import { cellText, stepsText } from './words';

const NARROW = 620;
const EMPTY = 'Nothing yet. Up to ten steps a second are sampled while the experiment trains.';

/** Everything on screen and what it does; `keyboard.ts` calls the public part. */
export class FlowView {
  readonly element = h('section', { class: 'wv-view wv-flow', 'aria-label': 'Gradient flow' });
  readonly drawing = new StripCanvas();
  private record: FlowColumns | null = null;
  private table = matching(FORCED)?.matches ?? false;
  /** The column that steps go from, and that the table shows. */
  private column = 0;
  private end: Dispose = () => {};
  private readonly reading = h('span', { class: 'wv-read' });
  private readonly tableButton = button('Table', () => this.toggleTable(), {}, 'T');
  private readonly controls = [this.stepButton(-1), this.stepButton(1), this.tableButton];
  private readonly main = h('div', { class: 'wv-strip' }, this.drawing.element);
  private readonly body = h('div', { class: 'wv-flow-body' }, this.main);
  private readonly notes = h('p', { class: 'wv-notes', hidden: true });
  private readonly message = h('div', { class: 'wv-empty', hidden: true });
  private readonly live = h('output', { class: 'wv-sr', 'aria-live': 'polite' });
  private open: boolean;

  constructor(
    private readonly store: Store<FlowViewState, never>,
    { foot }: FlowViewOptions,
  ) {
    this.open = foot?.open ?? true;
    this.element.toggleAttribute('data-foot', foot !== undefined);
    this.drawing.low = foot !== undefined;
    const title = h('h2', {}, foot ? this.toggle(foot.onToggle) : 'Gradient flow');
    const head = h('div', { class: 'wv-head' }, title, this.reading, ...this.controls);
    this.element.append(h('style', {}, STYLE), head, this.body, this.notes, this.message);
    this.element.append(this.live);
  }

  start(): void {
    followPointer(this);
    this.end = follow(this.element, this.main, this.store, {
      key: (event) => handleKey(this, event),
      theme: (palette) => {
        this.drawing.palette = palette;
        this.resize();
      },
      update: () => this.update(),
      resize: () => this.resize(),
    });
    this.update();
  }

  dispose(): void {
    this.end();
    this.drawing.dispose();
    this.element.remove();
  }

  private update(): void {
    const { record, error, missing, captured = [], shown = null } = this.store.get();
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
    const { drawing, open } = this;
    drawing.captured = captured;
    // The view beside went to another step: the cursor is not there any more.
    if (shown !== drawing.shown && shown !== this.record?.step[this.column]) drawing.cursor = null;
    drawing.shown = shown;
    const drawn = this.record !== null && this.record.step.length > 0;
    this.body.hidden = !drawn || !open;
    for (const control of this.controls) control.hidden = !drawn || !open;
    const notes = this.record?.notes ?? [];
    this.message.hidden = ((drawn || notes.length > 0) && problem === null) || !open;
    this.message.replaceChildren(problem === null ? (missing ?? EMPTY) : errorBox(problem));
    this.notes.hidden = notes.length === 0 || !open;
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

  /** The title as what opens and closes the strip. */
  private toggle(onToggle: (open: boolean) => void): HTMLElement {
    const toggle = (): void => {
      this.open = !this.open;
      one.setAttribute('aria-expanded', String(this.open));
      onToggle(this.open);
      this.update();
    };
    const one = h('button', { type: 'button', class: 'wv-link', onclick: toggle }, 'Gradient flow');
    one.setAttribute('aria-expanded', String(this.open));
    return one;
  }

  setHover(spot: Spot | null): void {
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
    this.drawing.hover = null;
    const within = (value: number, most: number): number => Math.max(0, Math.min(most, value));
    const row = within((cursor?.row ?? 0) + (cursor ? rows : 0), strip.rows - 1);
    const from = cursor?.cell ?? cellOf(strip, this.column);
    const jump = cursor || !Number.isFinite(cells) ? cells : 0;
    this.setCursor({ row, cell: within(from + jump, strip.cells - 1) });
    this.live.textContent = this.reading.textContent;
    this.sendStep(true);
  }

  /** One sampled step back or on. */
  moveStep(by: number): void {
    const { strip, cursor } = this.drawing;
    if (!this.record || !strip || !strip.cells) return;
    this.drawing.hover = null;
    this.column = Math.max(0, Math.min(this.record.step.length - 1, this.column + by));
    this.setCursor({ row: cursor?.row ?? 0, cell: cellOf(strip, this.column) });
    this.live.textContent = `step ${formatCount(this.record.step[this.column] ?? 0)}`;
    this.sendStep(true);
  }

  /** Sends the page the wanted step. */
  sendStep(passing: boolean): void {
    const { record, drawing, column } = this;
    const { path = '', label = '' } = record?.rows[drawing.cursor?.row ?? -1] ?? {};
    if (!record || !drawing.cursor) return;
    this.dispatch({ step: record.step[column] ?? 0, passing, path, label });
  }

  /** Back to the captured step; whether another one was chosen. */
  leave(): boolean {
    if (!this.drawing.cursor) return false;
    this.setCursor(null);
    this.dispatch({ step: null, passing: false, path: '', label: '' });
    return true;
  }

  private dispatch(wanted: Omit<StepDetail, 'experiment'>): void {
    const detail: StepDetail = { ...wanted, experiment: this.record?.experiment ?? null };
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
    const { record, drawing } = this;
    const { strip, hover, cursor } = drawing;
    const spot = hover ?? cursor;
    const about = record && `norm of all parameter gradients of a module, ${stepsText(record)}`;
    this.reading.dataset['on'] = String(spot !== null);
    const chosen = hover ? -1 : this.column;
    const text =
      record && strip && spot ? cellText(record, strip, spot.row, spot.cell, chosen) : about;
    this.reading.textContent = text || '';
    const step = record?.step[this.column] ?? 0;
    drawing.element.setAttribute('aria-valuenow', String(step));
    drawing.element.setAttribute('aria-valuetext', cursor ? text || '' : `step ${step}`);
  }
}

function errorBox(text: string): HTMLElement {
  const title = h('b', {}, 'The gradient flow could not be shown');
  return h('div', { class: 'wv-error', role: 'alert' }, title, shorten(text, 2000));
}
