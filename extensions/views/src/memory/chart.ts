/** The timeline's canvas: hover, click for the scrubber, drag for a range, wheel to zoom. */
import { h, perFrame } from '../dom';
import type { Palette } from '../graph/theme';
import { patternsOf, type Patterns } from './patterns';
import { releasesOf, type Release } from './releases';
import { positionAt, xOf, type ChartView } from './scale';
import { paintTimeline, type Height } from './timeline';
import { paintUsable, paintFailure, paintInterval } from './timeline-limits';
import {
  paintPeak,
  paintPhases,
  paintRefusals,
  paintReleases,
  paintScrubber,
} from './timeline-marks';

export interface ChartEvents {
  scrub: (position: number) => void;
  hover: (position: number | null) => void;
  range: (from: number, to: number) => void;
}

const DRAG = 5;
/** Pixels from a mark within which it is meant. */
const NEAR = 9;

export class Chart {
  readonly element = h('canvas', {
    class: 'wv-timeline',
    tabindex: 0,
    role: 'application',
    'aria-label':
      'Memory over time. Left and right move the scrubber, End goes to the peak, T shows a table.',
  });
  private view: ChartView | null = null;
  private palette: Palette | null = null;
  private readonly next = perFrame(() => this.draw());
  private patterns: Patterns | null = null;
  private releases: Release[] = [];
  /** Everything but the scrubber, as last drawn, and what it was drawn of. */
  private readonly ground = document.createElement('canvas');
  private drawn = '';
  private y: Height = () => 0;

  constructor(private readonly events: ChartEvents) {
    this.listen();
  }

  show(view: ChartView | null, palette: Palette): void {
    if (view && view.record !== this.view?.record) this.releases = releasesOf(view.record);
    if (palette !== this.palette) this.patterns = null;
    this.view = view;
    this.palette = palette;
    this.drawn = '';
    this.redraw();
  }

  redraw(): void {
    this.next.request();
  }

  dispose(): void {
    this.next.cancel();
  }

  private draw(): void {
    const { element, view, palette } = this;
    const width = element.clientWidth;
    const height = element.clientHeight;
    const context = element.getContext('2d');
    if (!context || !view || !palette || width < 40 || height < 40) return;
    const ratio = devicePixelRatio;
    const size = [Math.round(width * ratio), Math.round(height * ratio)] as const;
    if (element.width !== size[0] || element.height !== size[1])
      [element.width, element.height] = size;
    this.patterns ??= patternsOf(context, palette);
    const { patterns } = this;
    const frame = { context, palette, patterns, width, height, labels: [] };
    const key = [...size, view.from, view.to, view.axis, ...view.hidden].join();
    if (key !== this.drawn) {
      this.drawn = key;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.y = paintTimeline(frame, view);
      paintPhases(frame, view);
      paintUsable(frame, view, this.y);
      paintReleases(frame, view, this.releases);
      paintPeak(frame, view, this.y);
      paintRefusals(frame, view, this.y);
      paintInterval(frame, view, this.y);
      paintFailure(frame, view, this.y);
      [this.ground.width, this.ground.height] = size;
      this.ground.getContext('2d')?.drawImage(element, 0, 0);
    } else {
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.drawImage(this.ground, 0, 0);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    paintScrubber(frame, view, this.y);
  }

  private at(event: MouseEvent): number {
    const box = this.element.getBoundingClientRect();
    return this.view ? positionAt(this.view, box.width, event.clientX - box.left) : 0;
  }

  private listen(): void {
    const { element } = this;
    let down: { x: number; position: number; brush: boolean } | null = null;
    element.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !this.view) return;
      element.setPointerCapture?.(event.pointerId);
      down = { x: event.clientX, position: this.at(event), brush: !this.onScrubber(event) };
    });
    element.addEventListener('pointermove', (event) => {
      const { view } = this;
      if (!view) return;
      const position = this.at(event);
      if (!down) this.events.hover(position);
      else if (!down.brush) this.events.scrub(position);
      else if (Math.abs(event.clientX - down.x) > DRAG) {
        view.brush = [down.position, position];
        this.redraw();
      }
    });
    element.addEventListener('pointerup', (event) => {
      const brush = this.view?.brush;
      if (this.view) this.view.brush = null;
      if (brush) this.events.range(Math.min(...brush), Math.max(...brush));
      else if (down)
        this.events.scrub(this.refusal(event) ?? (down.brush ? down.position : this.at(event)));
      down = null;
    });
    element.addEventListener('pointercancel', () => {
      down = null;
      if (this.view) this.view.brush = null;
      this.redraw();
    });
    element.addEventListener('pointerleave', () => this.events.hover(null));
    element.addEventListener('dblclick', () => this.events.range(0, Infinity));
    element.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
  }

  /** The position of a mark "out of memory" under the pointer. */
  private refusal(event: MouseEvent): number | null {
    const { view } = this;
    const box = this.element.getBoundingClientRect();
    if (!view) return null;
    for (const refused of Array.from(view.record.oom_event)) {
      const x = xOf(view, box.width, refused + 1);
      const y = this.y((view.all.reserved ?? view.all.total)[refused + 1] ?? 0);
      const [across, down] = [event.clientX - box.left - x, event.clientY - box.top - y];
      if (Math.hypot(across, down) <= NEAR) return refused + 1;
    }
    return null;
  }

  private onScrubber(event: MouseEvent): boolean {
    const box = this.element.getBoundingClientRect();
    if (!this.view) return false;
    return Math.abs(event.clientX - box.left - xOf(this.view, box.width, this.view.scrubber)) < 5;
  }

  /** Ctrl or a pinch zooms about the pointer; a sideways wheel pans. A plain one scrolls the page. */
  private wheel(event: WheelEvent): void {
    const { view } = this;
    if (!view) return;
    const span = view.to - view.from;
    if (event.ctrlKey || event.metaKey) {
      const fixed = this.at(event);
      const factor = Math.exp(event.deltaY * 0.004);
      this.events.range(fixed - (fixed - view.from) * factor, fixed + (view.to - fixed) * factor);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / this.element.clientWidth) * span;
      this.events.range(view.from + shift, view.to + shift);
    } else return;
    event.preventDefault();
  }
}
