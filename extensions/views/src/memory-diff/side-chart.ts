/** The timeline of one side: its areas, phases and peak, what is lit of it, and the cursor. */
import { h, perFrame } from '../dom';
import { formatBytes } from '../graph/format';
import type { Palette } from '../graph/theme';
import { patternsOf, type Patterns } from '../memory/patterns';
import { BOTTOM, LEFT, PHASES, positionAt, RIGHT, xOf } from '../memory/scale';
import { phaseAt } from '../memory/series';
import { paintTimeline, type Frame, type Height } from '../memory/timeline';
import { paintPeak, paintPhases, paintRefusals } from '../memory/timeline-marks';
import { beside, label } from '../memory/timeline-pen';
import type { Side } from './side';

/** Height of the strip where a recording has ended, in pixels. */
const ENDED = 6;

export interface CursorEvents {
  /** To a place on the shared axis, from 0 to 1; null: away. */
  cursor: (place: number | null) => void;
}

export class SideChart {
  readonly element: HTMLCanvasElement;
  private side: Side | null = null;
  private palette: Palette | null = null;
  private patterns: Patterns | null = null;
  private cursor: number | null = null;
  private readonly next = perFrame(() => this.draw());
  /** Everything but the cursor, as last drawn. */
  private readonly ground = document.createElement('canvas');
  private stale = true;
  private y: Height = () => 0;

  constructor(
    private readonly letter: 'A' | 'B',
    events: CursorEvents,
  ) {
    const said = `Memory of ${letter} over time. Left and right move a cursor through A and B, T shows a table.`;
    const role = { role: 'application', 'aria-label': said };
    this.element = h('canvas', { class: 'wv-timeline', tabindex: 0, ...role });
    const { element } = this;
    element.addEventListener('pointermove', ({ clientX }) => {
      const box = element.getBoundingClientRect();
      const place = (clientX - box.left - LEFT) / Math.max(1, box.width - LEFT - RIGHT);
      events.cursor(Math.min(1, Math.max(0, place)));
    });
    element.addEventListener('pointerleave', () => events.cursor(null));
  }

  /** Draws a side anew: it, its colours or what is lit of it changed. */
  show(side: Side | null, palette: Palette | null): void {
    if (palette !== this.palette) this.patterns = null;
    this.side = side;
    this.palette = palette;
    this.stale = true;
    this.redraw();
  }

  /** Moves the cursor; null takes it away. */
  point(place: number | null): void {
    this.cursor = place;
    this.redraw();
  }

  /** What a place on the shared axis stands for: `B backward 1.2 MiB`. */
  describe(place: number): string {
    const { side } = this;
    if (!side) return '';
    const position = this.positionOf(side, place);
    const phase = phaseAt(side.record, position - 1);
    const held = formatBytes(side.series.total[position] ?? 0);
    return [this.letter, phase, held].filter(Boolean).join(' ');
  }

  dispose(): void {
    this.next.cancel();
  }

  private redraw(): void {
    this.next.request();
  }

  private positionOf({ view }: Side, place: number): number {
    const width = this.element.clientWidth || 1000;
    return positionAt(view, width, LEFT + place * (width - LEFT - RIGHT));
  }

  private draw(): void {
    const { element, side, palette } = this;
    const [width, height] = [element.clientWidth, element.clientHeight];
    const context = element.getContext('2d');
    if (!context || !side || !palette || width < 120 || height < 60) return;
    const ratio = devicePixelRatio;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (element.width !== wide || element.height !== high) {
      [element.width, element.height] = [wide, high];
      this.stale = true;
    }
    this.patterns ??= patternsOf(context, palette);
    const { patterns } = this;
    const frame: Frame = { context, palette, patterns, width, height, labels: [] };
    if (this.stale) this.paint(frame, side, ratio);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.ground, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintCursor({ ...frame, labels: [] }, side);
  }

  private paint(frame: Frame, side: Side, ratio: number): void {
    const { context } = frame;
    const { view } = side;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.y = paintTimeline(frame, view);
    coverEnd(frame, side);
    paintPhases(frame, view);
    paintRefusals(frame, view, this.y);
    paintPeak(frame, { ...view, filtered: false }, this.y);
    [this.ground.width, this.ground.height] = [this.element.width, this.element.height];
    this.ground.getContext('2d')?.drawImage(this.element, 0, 0);
    this.stale = false;
  }

  private paintCursor(frame: Frame, side: Side): void {
    if (this.cursor === null) return;
    const { context, palette, width, height } = frame;
    const { view, series } = side;
    const position = this.positionOf(side, this.cursor);
    const x = LEFT + this.cursor * (width - LEFT - RIGHT);
    const level = this.y(series.total[position] ?? 0);
    context.fillStyle = palette.select;
    context.fillRect(Math.round(x) - 1, PHASES + 2, 2, height - BOTTOM - PHASES - 2);
    context.fillStyle = palette.canvas;
    context.strokeStyle = palette.select;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, level, 3.5, 0, 7);
    context.fill();
    context.stroke();
    const lit = formatBytes(view.series.total[position] ?? 0);
    const rest = view.filtered ? `${lit} of it lit` : phaseAt(side.record, position - 1);
    const bold = formatBytes(series.total[position] ?? 0);
    const [left] = beside(frame, bold, [rest], x, 10);
    context.textBaseline = 'middle';
    label(frame, bold, rest, left, Math.min(height - BOTTOM - 10, level + 14), palette.ink);
  }
}

/** Where the other recording goes on, this one has ended: nothing is known of what it held then. */
function coverEnd({ context, palette, patterns, width, height }: Frame, { view }: Side): void {
  const x = Math.ceil(xOf(view, width, view.to));
  if (x >= width - RIGHT - 1) return;
  context.fillStyle = palette.token('--wb-surface');
  context.fillRect(x, PHASES + 2, width - x, height - BOTTOM - PHASES - 2);
  context.fillStyle = patterns.free;
  context.fillRect(x, height - BOTTOM - ENDED, width - RIGHT - x, ENDED);
}
