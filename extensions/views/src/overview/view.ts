/** Chooses a range of a recording that is too long to be shown at once. */
import { h, watchSize } from '../dom';
import { button, choices, type Choices } from '../graph/dom';
import { formatBytes, formatCount, formatSeconds, oneLine, plural } from '../graph/format';
import { followTheme } from '../graph/theme';
import { RangeChart } from './chart';
import { highestIn, timeOf, within, type Along, type Overview, type EventRange } from './model';
import { STYLE } from './style';

export interface OverviewEvents {
  /** A range is to be opened. */
  open: (range: EventRange) => void;
  /** Back to the range that is open already. */
  back: () => void;
}

export interface OverviewOptions {
  /** The host's own controls, at the left end of the bar. */
  readonly lead?: readonly HTMLElement[];
}

/** A bar, the overview, the chosen range in numbers, and the button that opens it. */
export class OverviewView {
  readonly element = h('div', { class: 'wv-view wv-overview' });
  private readonly title = h('span', { class: 'wv-title' });
  private readonly summary = h('p', { class: 'wv-summary' });
  private readonly first = number('From event');
  private readonly last = number('to');
  private readonly chosen = h('p', { class: 'wv-chosen', role: 'status' });
  private readonly refused = h('p', { class: 'wv-refused', role: 'alert', hidden: true });
  private readonly openIt = button('Open this range', () => this.open(), {
    class: 'wv-btn wv-primary',
  });
  private readonly whole = button('All of it', () => this.take(0, this.seen.num_events));
  private readonly back = button('Back', () => this.events.back(), {}, 'Esc');
  private readonly axis: Choices<Along>;
  private readonly chart: RangeChart;
  private along: Along = 'events';
  private range: EventRange = { start: 0, end: 1 };
  private readonly cleanup: (() => void)[] = [];

  constructor(
    private seen: Overview,
    private readonly events: OverviewEvents,
    { lead = [] }: OverviewOptions = {},
  ) {
    this.chart = new RangeChart(seen, (range) => this.put(range));
    const axes = [
      { value: 'time', text: 'Time' },
      { value: 'events', text: 'Events' },
    ] as const;
    this.axis = choices<Along>('Time axis', axes, this.along, (along) => {
      this.along = along;
      this.draw();
    });
    const bar = h('div', { class: 'wv-bar', role: 'toolbar', 'aria-label': 'Recording' });
    const space = h('span', { class: 'wv-space' });
    bar.append(...lead, this.title, space, this.axis.element, this.back);
    this.element.append(h('style', {}, STYLE), bar, this.body());
    this.element.addEventListener('keydown', (event) => this.key(event));
    for (const input of [this.first, this.last]) {
      const box = input.querySelector('input');
      box?.addEventListener('change', () => this.read());
    }
  }

  private body(): HTMLElement {
    const presets = h(
      'span',
      { class: 'wv-presets', role: 'group', 'aria-label': 'Preset ranges' },
      button('Around the peak', () => this.around()),
      button('The beginning', () => this.take(0, this.share())),
      button('The end', () => this.take(this.seen.num_events - this.share(), Infinity)),
      this.whole,
    );
    return h(
      'div',
      { class: 'wv-chooser' },
      this.summary,
      this.chart.element,
      h('div', { class: 'wv-choice' }, this.first, this.last, presets),
      h('div', { class: 'wv-go' }, this.openIt, this.chosen, this.refused),
    );
  }

  /** Shows a recording, with a range of it chosen; `isOpen`: one is there to go back to. */
  show(seen: Overview, range: EventRange | null, isOpen: boolean): void {
    this.seen = seen;
    this.along = seen.duration_us > 0 ? 'time' : 'events';
    this.axis.set(this.along);
    this.axis.element.hidden = seen.duration_us <= 0;
    this.back.hidden = !isOpen;
    this.title.textContent = oneLine(seen.title);
    this.summary.replaceChildren(...words(seen));
    this.whole.hidden = seen.num_events > seen.most;
    const [start, end] = seen.num_events <= seen.most ? [0, seen.num_events] : seen.proposed;
    this.put(range ?? within(seen, start, end));
  }

  start(): void {
    this.cleanup.push(
      followTheme(this.element, (palette) => this.chart.colour(palette)),
      watchSize(() => this.chart.resize(), this.chart.element),
    );
  }

  focus(): void {
    this.chart.focus();
  }

  dispose(): void {
    for (const end of this.cleanup) end();
    this.chart.dispose();
    this.element.remove();
  }

  private share(): number {
    const [start, end] = this.seen.proposed;
    return end - start;
  }

  private around(): void {
    const [start, end] = this.seen.proposed;
    this.take(start, end);
  }

  private take(start: number, end: number): void {
    this.put(within(this.seen, start, Math.min(end, this.seen.num_events)));
  }

  /** Takes what was typed; what is no number is put back to what is chosen. */
  private read(): void {
    const [start, end] = [this.first, this.last].map((one) =>
      Number((one.querySelector('input')?.value ?? '').replace(/[\s,.]/g, '') || NaN),
    ) as [number, number];
    const { range } = this;
    this.take(Number.isFinite(start) ? start : range.start, end >= 0 ? end : range.end);
  }

  private put(range: EventRange): void {
    this.range = range;
    this.draw();
  }

  private draw(): void {
    const { seen, range, along } = this;
    this.chart.show(seen, along, range);
    fill(this.first, range.start);
    fill(this.last, range.end);
    const count = range.end - range.start;
    const seconds = (timeOf(seen, range.end) - timeOf(seen, range.start)) / 1e6;
    const long = seen.duration_us > 0 ? ` over ${formatSeconds(seconds)}` : '';
    const most = formatBytes(highestIn(seen, range));
    this.chosen.textContent = `${plural(count, 'event')}${long}, at most ${most} live`;
    const tooMany = count > seen.most;
    this.refused.hidden = !tooMany;
    this.refused.textContent = tooMany
      ? `At most ${formatCount(seen.most)} events are shown at once: choose a shorter range.`
      : '';
    this.openIt.setAttribute('aria-disabled', String(tooMany));
  }

  private open(): void {
    if (this.openIt.getAttribute('aria-disabled') !== 'true') this.events.open(this.range);
  }

  private key(event: KeyboardEvent): void {
    const at = event.target as HTMLElement;
    if (event.key === 'Enter' && at.matches('[role=slider],input')) {
      if (at.matches('input')) this.read();
      this.open();
    } else if (event.key === 'Escape' && !this.back.hidden) {
      this.events.back();
    } else return;
    event.preventDefault();
  }
}

function words(seen: Overview): (Node | string)[] {
  const long = seen.duration_us > 0 ? ` over ${formatSeconds(seen.duration_us / 1e6)}` : '';
  const most = formatCount(seen.most);
  return [
    h('b', {}, plural(seen.num_events, 'event')),
    `${long} on ${oneLine(seen.device)}. `,
    seen.num_events > seen.most
      ? `At most ${most} are shown at once, so choose a range: drag over the curve, or move its ends.`
      : 'Choose a range to open: drag over the curve, or move its ends.',
  ];
}

/** A box for the number of an event. */
function number(label: string): HTMLElement {
  const input = h('input', { type: 'text', inputmode: 'numeric', maxlength: 16 });
  return h('label', { class: 'wv-number' }, label, input);
}

function fill(box: HTMLElement, value: number): void {
  const input = box.querySelector('input');
  if (input) input.value = formatCount(value);
}
