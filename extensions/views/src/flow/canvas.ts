/** The strip's canvas: fits the cells to the room there is, draws once a frame, finds cells. */
import { h, perFrame } from '../dom';
import type { Palette } from '../graph/theme';
import { BOTTOM, LOW_ROW, paintStrip, RIGHT, ROW, TOP, type Place, type Spot } from './paint';
import { cellOf, columnOf, limitsOf, reduce, type FlowColumns, type Strip } from './strip';
import { stepsText } from './words';

const MIN_CELL = 4;
const MAX_CELL = 24;
const MAX_LABEL = 200;
/** Rows that are not made lower. */
const FEW = 8;

export class StripCanvas {
  /** One value, the step, along a track: a slider, whose text says what the cell holds. */
  readonly element = h('canvas', { tabindex: 0, role: 'slider' });
  record: FlowColumns | null = null;
  strip: Strip | null = null;
  cursor: Spot | null = null;
  hover: Spot | null = null;
  captured: readonly number[] = [];
  /** Below another view, which needs the height. */
  low = false;
  /** The step that another view shows beside this one. */
  shown: number | null = null;
  private place: Place = { width: 0, left: 0, cell: 0, row: ROW };
  /** Null, and nothing drawn, until the strip is in the page. */
  palette: Palette | null = null;
  private readonly next = perFrame(() => this.paint());

  /** Reduces the record to as many cells as `width` has room for. */
  fit(record: FlowColumns, width: number): Strip {
    const left = Math.min(MAX_LABEL, width * 0.35, this.labelWidth(record) + 14);
    const room = Math.max(MIN_CELL, width - left - RIGHT);
    const strip = reduce(record, Math.floor(room / MIN_CELL));
    const cell = Math.min(MAX_CELL, room / Math.max(1, strip.cells));
    this.record = record;
    this.strip = strip;
    const { hover } = this;
    if (hover && (hover.row >= strip.rows || hover.cell >= strip.cells)) this.hover = null;
    const row = this.low && record.rows.length > FEW ? LOW_ROW : ROW;
    this.place = { width, left, cell: cell > 8 ? Math.floor(cell) : cell, row };
    this.element.style.height = `${TOP + record.rows.length * row + BOTTOM}px`;
    const { element } = this;
    const label = `Gradient norms of ${record.rows.length} modules, ${stepsText(record)}.`;
    element.setAttribute('aria-label', `${label} Arrows choose a step, T shows a table.`);
    element.setAttribute('aria-valuemin', String(record.step[0] ?? 0));
    element.setAttribute('aria-valuemax', String(record.step[record.step.length - 1] ?? 0));
    this.draw();
    return strip;
  }

  /** The cell under the pointer. */
  spotAt(event: MouseEvent): Spot | null {
    const { strip, place } = this;
    const box = this.element.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - TOP) / place.row);
    const cell = Math.floor((event.clientX - box.left - place.left) / place.cell);
    const inside = strip && row >= 0 && row < strip.rows && cell >= 0 && cell < strip.cells;
    return inside ? { row, cell } : null;
  }

  /** The cell nearest to the pointer. */
  cellAt(event: MouseEvent): number {
    const { strip, place } = this;
    const x = event.clientX - this.element.getBoundingClientRect().left - place.left;
    return Math.max(0, Math.min((strip?.cells ?? 1) - 1, Math.floor(x / place.cell)));
  }

  draw(): void {
    this.next.request();
  }

  dispose(): void {
    this.next.cancel();
  }

  private labelWidth(record: FlowColumns): number {
    const context = this.element.getContext('2d');
    if (!context) return MAX_LABEL;
    context.font = `12px ${this.palette?.font ?? 'sans-serif'}`;
    const widths = record.rows.map((row) => context.measureText(row.label.slice(0, 80)).width);
    return Math.max(40, ...widths);
  }

  private paint(): void {
    const { element, record, strip, palette } = this;
    const context = element.getContext('2d');
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (!context || !record || !strip || !palette || width < 40) return;
    const ratio = devicePixelRatio;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const marked = (steps: readonly number[]): { step: number; cell: number }[] =>
      steps
        .map((step) => ({ step, column: columnOf(record, step) }))
        .filter(({ column }) => column >= 0)
        .map(({ step, column }) => ({ step, cell: cellOf(strip, column) }));
    const { captured, shown } = this;
    paintStrip(context, palette, {
      record,
      strip,
      limits: limitsOf(record),
      place: { ...this.place, width },
      // Without a view beside it, every captured step is marked alike.
      captured: shown === null ? [] : marked(captured.filter((step) => step !== shown)),
      shown: marked(shown === null ? captured : [shown]),
      cursor: this.cursor,
      hover: this.hover,
    });
  }
}
