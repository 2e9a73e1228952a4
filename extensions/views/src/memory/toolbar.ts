/** The toolbar: which face is shown, where to go, what to look for. */
import { button, choices, h, type Choices } from '../graph/dom';
import { oneLine, shorten } from '../graph/format';
import type { Slots } from '../graph/mount';
import { hasFlame } from './callers';
import type { Model } from './model';
import { releasesOf } from './releases';
import type { Axis } from './scale';
import type { MemoryView } from './view';

/** What stands below the chart. */
export type Face = 'map' | 'flame' | 'holders' | 'table';

const SEARCH_DELAY_MS = 120;

export class Toolbar {
  readonly element = h('div', { class: 'wv-bar', role: 'toolbar', 'aria-label': 'Memory' });
  readonly title = h('span', { class: 'wv-title' });
  private readonly predicted = h('button', {
    type: 'button',
    class: 'wv-pill wv-warn',
    hidden: true,
    onclick: () => this.view.toPrediction(),
  });
  readonly search = h('input', {
    type: 'search',
    placeholder: 'Name, module, line, >1MiB',
    'aria-label': 'Filter blocks by name, module, operation, category, line, address or size',
    maxlength: 200,
  });
  readonly details: HTMLButtonElement;
  readonly faces: Choices<Face>;
  readonly axis: Choices<Axis>;
  private readonly release: HTMLButtonElement;
  private readonly refusal: HTMLButtonElement;
  private timer = 0;

  constructor(
    private readonly view: MemoryView,
    { lead = [], tail = [] }: Slots,
  ) {
    this.faces = choices<Face>(
      'Shown below the chart',
      [
        { value: 'map', text: 'Map' },
        { value: 'flame', text: 'Flame' },
        { value: 'holders', text: 'Holders' },
        { value: 'table', text: 'Table' },
      ],
      'map',
      (face) => view.show(face),
    );
    Array.from('MSHT').forEach((key, at) =>
      this.faces.element.children[at]?.append(h('kbd', { 'aria-hidden': 'true' }, key)),
    );
    this.axis = choices<Axis>(
      'Time axis',
      [
        { value: 'time', text: 'Time' },
        { value: 'events', text: 'Events' },
      ],
      'events',
      (axis) => view.look((model) => (model.view.axis = axis)),
    );
    this.release = button(
      'Release',
      () => this.toRelease(),
      { title: 'Go to the next release of segments' },
      'R',
    );
    this.refusal = button('Out of memory', () => this.toRefusal(), {}, 'O');
    this.details = button('Details', () =>
      view.setDetails(this.details.getAttribute('aria-pressed') !== 'true'),
    );
    const find = h(
      'label',
      { class: 'wv-find' },
      this.search,
      h('kbd', { 'aria-hidden': 'true' }, '/'),
    );
    this.element.append(
      ...lead,
      this.title,
      this.predicted,
      this.faces.element,
      h('span', { class: 'wv-space' }),
    );
    this.element.append(
      button('Peak', () => view.toPeak(), {}, 'End'),
      this.release,
      this.refusal,
      button('All', () => view.range(0, Infinity), { title: 'Show the whole recording' }, 'F'),
      find,
      this.details,
      ...tail,
    );
    this.search.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.filter(), SEARCH_DELAY_MS);
    });
  }

  /** Shows what a record has. */
  open(model: Model): void {
    const { record, hasSegments, view } = model;
    this.release.hidden = releasesOf(record).length === 0;
    this.refusal.hidden = record.oom_event.length === 0;
    this.predicted.hidden = !record.is_predicted;
    this.predicted.textContent = ['predicted', oneLine(record.card)].filter(Boolean).join(' · ');
    this.predicted.title = shorten(record.reasons.join(' '), 600);
    this.axis.set(view.axis);
    const none = 'A recording on CPU has no segments: there is no caching allocator';
    this.faces.allow('map', hasSegments ? '' : none);
    const noCallers = 'Neither stacks nor modules were recorded';
    this.faces.allow('flame', hasFlame(record) ? '' : noCallers);
    if (this.search.value) model.filter(this.search.value);
  }

  /** The moment before the next release, the first one after the last. */
  toRelease(): void {
    const { model } = this.view;
    const moments = model ? releasesOf(model.record).map(({ first }) => first) : [];
    this.toNext(moments);
  }

  /** The next refused request, and what was in its way. */
  toRefusal(): void {
    this.view.select(null);
    this.toNext(Array.from(this.view.model?.record.oom_event ?? [], (event) => event + 1));
  }

  private toNext(moments: readonly number[]): void {
    const scrubber = this.view.model?.view.scrubber ?? 0;
    const next = moments.find((event) => event > scrubber) ?? moments[0];
    if (next !== undefined) this.view.scrub(next);
  }

  clear(): void {
    this.look('');
  }

  /** Looks for something, as if it had been typed. */
  look(query: string): void {
    clearTimeout(this.timer);
    this.search.value = query;
    this.filter();
  }

  private filter(): void {
    this.view.look((model) => model.filter(this.search.value));
  }
}
