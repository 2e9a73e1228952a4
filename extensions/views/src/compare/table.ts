/** A model's variants as a table: sorted by any column, one row chosen. */
import type { ComparedArm } from '@torch-workbench/records';
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { shorten } from '../graph/format';
import { type Column, MODES, type Order, REST, SPEED, sorted, STEP } from './columns';
import { axisLabels, axisOf, intervalPlot } from './interval';
import type { VariantRow } from './report';
import { duration, speed } from './words';

/** The plot of the interval stands between these. */
const COLUMNS: readonly Column[] = [MODES, SPEED, STEP, ...REST];
const WIDE = COLUMNS.length + 1;

export class VariantTable {
  readonly element: HTMLElement;
  private readonly body = h('tbody', {});
  private readonly heads = new Map<Column, HTMLElement>();
  private readonly rows = new Map<HTMLElement, VariantRow>();
  private readonly axis: ReturnType<typeof axisOf>;
  private order: { by: Column; way: Order } | null = null;
  private selected: number | null = null;

  constructor(
    private readonly variants: readonly VariantRow[],
    label: string,
    private readonly select: (variant: VariantRow) => void,
    private readonly say: (text: string) => void,
  ) {
    this.axis = axisOf(variants.map(({ variant }) => variant));
    const head = h('tr', {}, ...COLUMNS.map((column) => this.headOf(column)));
    const plot = h('th', { scope: 'col', class: 'wv-plot', 'aria-label': 'Speed, drawn' });
    plot.append(axisLabels(this.axis.x, this.axis.marks));
    head.children[1]?.after(plot);
    const table = h('table', { role: 'grid', 'aria-label': label }, h('thead', {}, head));
    table.append(this.body);
    this.element = h('div', { class: 'wv-scroll' }, table);
    roving(this.body, () => [...this.rows.keys()]);
    this.body.addEventListener('focusin', ({ target }) => this.choose(target));
    this.body.addEventListener('click', ({ target }) => this.choose(target));
    this.list();
  }

  /** Marks the chosen row. */
  mark(selected: number | null): void {
    this.selected = selected;
    const rows = [...this.rows];
    for (const [element, { row }] of rows)
      element.setAttribute('aria-selected', String(row === selected));
    const stop = rows.find(([, { row }]) => row === selected) ?? rows[0];
    if (stop)
      setStop(
        rows.map(([element]) => element),
        stop[0],
      );
  }

  private headOf(column: Column): HTMLElement {
    const button = h(
      'button',
      { type: 'button', class: 'wv-sort', title: column.title, onclick: () => this.sort(column) },
      column.name,
    );
    const head = h('th', { scope: 'col', 'aria-sort': 'none' }, button);
    this.heads.set(column, head);
    return head;
  }

  /** Up, down, and as it was measured. */
  private sort(by: Column): void {
    const way = this.order?.by === by ? this.order.way : null;
    if (way === 'descending') this.order = null;
    else this.order = { by, way: way === null ? 'ascending' : 'descending' };
    for (const [column, head] of this.heads) {
      const own = this.order?.by === column ? this.order.way : 'none';
      head.setAttribute('aria-sort', own);
    }
    this.list();
    this.say(this.order ? `Sorted by ${by.name}, ${this.order.way}` : 'In the order given');
  }

  private list(): void {
    const { order, variants } = this;
    const shown = order
      ? sorted(variants, ({ variant }) => order.by.value(variant), order.way)
      : variants;
    this.rows.clear();
    this.body.replaceChildren(...shown.flatMap((variant) => this.rowsOf(variant)));
    this.mark(this.selected);
  }

  private rowsOf(of: VariantRow): HTMLElement[] {
    const { variant } = of;
    const name = h('th', { scope: 'row', title: variant.modes }, shorten(variant.modes, 60));
    if (Number.isNaN(variant.step_s)) {
      const why = variant.problem || 'No round of it was completed.';
      const cell = h('td', { class: 'wv-why', colspan: WIDE - 1 }, h('span', {}, why));
      const row = h('tr', { tabindex: -1 }, name, cell);
      this.rows.set(row, of);
      return [row];
    }
    const { said, interval } = speed(variant);
    const words = h(
      'td',
      { class: `wv-said wv-is-${variant.verdict || 'open'}` },
      h('b', {}, said),
    );
    if (interval) words.append(h('span', { class: 'wv-note' }, ` ${interval}`));
    const plot = intervalPlot(variant, this.axis.x, this.axis.marks);
    const figures = REST.map(({ text }) => h('td', {}, text(variant)));
    const drawn = h('td', { class: 'wv-plot' }, plot);
    const row = h('tr', { tabindex: -1 }, name, words, drawn, stepCell(variant), ...figures);
    this.rows.set(row, of);
    if (!variant.problem) return [row];
    const why = h('td', { class: 'wv-why', colspan: WIDE }, h('span', {}, variant.problem));
    return [row, h('tr', { class: 'wv-beside' }, why)];
  }

  private choose(target: EventTarget | null): void {
    const row = target instanceof Element ? target.closest('tr') : null;
    const of = row && this.rows.get(row);
    if (of && of.row !== this.selected) this.select(of);
  }
}

function stepCell(variant: ComparedArm): HTMLElement {
  const quartiles = `${duration(variant.step_q1_s)} – ${duration(variant.step_q3_s)}`;
  const spread = h('span', { class: 'wv-note' }, ` ${quartiles}`);
  return h('td', { class: 'wv-step' }, STEP.text(variant), spread);
}
