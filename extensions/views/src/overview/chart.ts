/**
 * The chart of a whole recording, with the chosen range in it: its two ends and the range
 * itself can be dragged, and are moved by keys as sliders are; a drag elsewhere chooses anew.
 */
import { h, perFrame } from '../dom';
import { formatBytes, formatCount, formatSeconds } from '../graph/format';
import type { Palette } from '../graph/theme';
import {
  highestIn,
  moved,
  timeOf,
  within,
  type Along,
  type Overview,
  type EventRange,
} from './model';
import { paint, positionAt, TOP, xOf, type Plot } from './paint';
import { BOTTOM } from '../memory/scale';

type Part = 'start' | 'end' | 'all';

/** Pixels within which a press is no drag. */
const DRAG = 4;

export class RangeChart {
  private readonly canvas = h('canvas', { class: 'wv-overcanvas', 'aria-hidden': 'true' });
  private readonly parts = {
    all: slider('wv-thumb', 'The whole range'),
    start: slider('wv-grip', 'First event of the range'),
    end: slider('wv-grip', 'Event after the range'),
  };
  readonly element = h('div', { class: 'wv-plot' }, this.canvas, ...Object.values(this.parts));
  private palette: Palette | null = null;
  private readonly next = perFrame(() => this.draw());
  private along: Along = 'events';
  private range: EventRange = { start: 0, end: 1 };

  constructor(
    private seen: Overview,
    private readonly onChange: (range: EventRange) => void,
  ) {
    for (const part of ['all', 'start', 'end'] as const) {
      this.parts[part].addEventListener('keydown', (event) => this.key(part, event));
      this.parts[part].addEventListener('pointerdown', (event) => this.drag(part, event));
    }
    this.canvas.addEventListener('pointerdown', (event) => this.brush(event));
  }

  show(seen: Overview, along: Along, range: EventRange): void {
    [this.seen, this.along, this.range] = [seen, along, range];
    this.describe();
    this.next.request();
  }

  colour(palette: Palette): void {
    this.palette = palette;
    this.next.request();
  }

  resize(): void {
    this.next.request();
  }

  /** The end of the range that a keyboard begins with. */
  focus(): void {
    this.parts.start.focus();
  }

  dispose(): void {
    this.next.cancel();
  }

  private get plot(): Plot {
    const { clientWidth: width, clientHeight: height } = this.element;
    return { seen: this.seen, along: this.along, width, height };
  }

  private draw(): void {
    const { canvas, palette, plot, range } = this;
    const context = canvas.getContext('2d');
    if (!context || !palette || plot.width < 60 || plot.height < 60) return;
    const ratio = devicePixelRatio;
    canvas.width = Math.round(plot.width * ratio);
    canvas.height = Math.round(plot.height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(context, palette, plot, range);
    const [from, to] = [xOf(plot, range.start), xOf(plot, range.end)];
    const { all, start, end } = this.parts;
    for (const [grip, x] of [[start, from] as const, [end, to] as const]) {
      grip.style.left = `${x}px`;
      grip.style.top = `${TOP - 4}px`;
      grip.style.bottom = `${BOTTOM}px`;
    }
    all.style.left = `${from}px`;
    all.style.width = `${Math.max(12, to - from)}px`;
  }

  private describe(): void {
    const { seen, range, parts } = this;
    const clock = (at: number): string =>
      seen.duration_us > 0 ? `, at ${formatSeconds(timeOf(seen, at) / 1e6)}` : '';
    const says = (part: Part, now: number, text: string): void => {
      parts[part].setAttribute('aria-valuemin', '0');
      parts[part].setAttribute('aria-valuemax', String(seen.num_events));
      parts[part].setAttribute('aria-valuenow', String(now));
      parts[part].setAttribute('aria-valuetext', text);
    };
    for (const part of ['start', 'end'] as const)
      says(part, range[part], `event ${formatCount(range[part])}${clock(range[part])}`);
    const most = formatBytes(highestIn(seen, range));
    const ends = `${formatCount(range.start)} to ${formatCount(range.end)}`;
    says('all', range.start, `events ${ends}, at most ${most}`);
  }

  private change(range: EventRange): void {
    this.range = range;
    this.describe();
    this.next.request();
    this.onChange(range);
  }

  private put(part: Part, from: EventRange, by: number): void {
    const { seen } = this;
    if (part === 'all') return this.change(moved(seen, from, by));
    const { start, end } = from;
    // One end stops before the other: it does not push it, or pass it.
    if (part === 'start') this.change(within(seen, Math.min(start + by, end - 1), end));
    else this.change(within(seen, start, Math.max(end + by, start + 1)));
  }

  private key(part: Part, event: KeyboardEvent): void {
    const { num_events: whole } = this.seen;
    const unit = Math.max(1, Math.round(whole / (event.shiftKey ? 20 : 400)));
    const steps: Record<string, number> = {
      ArrowLeft: -unit,
      ArrowDown: -unit,
      ArrowRight: unit,
      ArrowUp: unit,
      PageDown: -Math.round(whole / 10),
      PageUp: Math.round(whole / 10),
      Home: -whole,
      End: whole,
    };
    const by = steps[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.put(part, this.range, by);
  }

  private drag(part: Part, event: PointerEvent): void {
    if (event.button !== 0) return;
    event.preventDefault();
    const { range } = this;
    this.parts[part].focus();
    const begun = this.at(event);
    this.follow(this.parts[part], event, (now) => this.put(part, range, now - begun));
  }

  /** Inside the range a drag moves it, elsewhere it chooses another one. */
  private brush(event: PointerEvent): void {
    if (event.button !== 0) return;
    const { range, seen } = this;
    const begun = this.at(event);
    if (begun > range.start && begun < range.end) {
      this.follow(this.canvas, event, (now) => this.put('all', range, now - begun));
    } else {
      this.follow(this.canvas, event, (now) => this.change(within(seen, begun, now)));
    }
  }

  private follow(element: HTMLElement, down: PointerEvent, to: (position: number) => void): void {
    element.setPointerCapture?.(down.pointerId);
    let dragging = false;
    const move = (event: PointerEvent): void => {
      dragging ||= Math.abs(event.clientX - down.clientX) >= DRAG;
      if (dragging) to(this.at(event));
    };
    const end = (): void => {
      element.removeEventListener('pointermove', move);
      for (const name of ['pointerup', 'pointercancel'] as const)
        element.removeEventListener(name, end);
    };
    element.addEventListener('pointermove', move);
    for (const name of ['pointerup', 'pointercancel'] as const) element.addEventListener(name, end);
  }

  private at(event: MouseEvent): number {
    return positionAt(this.plot, event.clientX - this.element.getBoundingClientRect().left);
  }
}

function slider(name: string, label: string): HTMLElement {
  return h('div', { class: name, role: 'slider', tabindex: 0, 'aria-label': label });
}
