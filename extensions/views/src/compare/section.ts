/**
 * One model of a comparison: what it came to, its table, and the chosen variant beside the
 * baseline.
 */
import type { CompareRecord } from '@torch-workbench/records';
import { h } from '../dom';
import { shorten } from '../graph/format';
import { type Chart, chartOf } from './charts';
import { type VariantRow, variantsOf, losses, stepTimes, suggestedVariant } from './report';
import { VariantTable } from './table';
import { verdict } from './words';

const BESIDE = 700;
const GAP = 16;

export class ModelSection {
  readonly element: HTMLElement;
  private readonly variants: readonly VariantRow[];
  private readonly table: VariantTable;
  private readonly detail = h('div', { class: 'wv-detail', role: 'region' });
  private chosen: VariantRow | null = null;
  private width = 0;

  constructor(
    private readonly record: CompareRecord,
    model: string,
    named: boolean,
    private readonly say: (text: string) => void,
  ) {
    this.variants = variantsOf(record, model);
    const said = h('p', { class: 'wv-verdict' }, verdict(record, model));
    const label = named ? `Modes of ${shorten(model, 80)}` : 'Modes';
    this.table = new VariantTable(this.variants, label, (variant) => this.choose(variant), say);
    this.element = h('section', { 'aria-label': label });
    if (named) this.element.append(h('h3', {}, shorten(model, 80)));
    this.element.append(said, this.table.element, this.detail);
    const first = suggestedVariant(this.variants);
    this.chosen = first;
    this.table.mark(first?.row ?? null);
  }

  /** Draws what has a width of its own. */
  resize(width: number): void {
    if (width === this.width) return;
    this.width = width;
    this.draw();
  }

  private choose(variant: VariantRow): void {
    this.chosen = variant;
    this.table.mark(variant.row);
    this.draw();
    this.say(`${variant.variant.modes} chosen`);
  }

  private draw(): void {
    const { chosen, detail } = this;
    const base = this.variants[0];
    detail.hidden = !chosen || !base;
    if (!chosen || !base) return;
    const beside = chosen.row === base.row ? '' : ` against ${base.variant.modes}`;
    detail.setAttribute('aria-label', `${chosen.variant.modes}${beside}`);
    const charts = this.chartsOf(base, chosen).filter(({ series }) => series.length > 0);
    const notes = chosen.variant.notes.map((note) => h('p', { class: 'wv-note' }, note));
    const inside = (this.element.clientWidth || this.width) - 24;
    const each = this.width >= BESIDE ? (inside - GAP) / 2 : inside;
    const nothing =
      charts.length > 0 ? [] : [h('p', { class: 'wv-note' }, 'No round of it was completed.')];
    detail.replaceChildren(
      ...charts.map((chart) => chartOf(chart, Math.floor(each))),
      ...nothing,
      ...notes,
    );
  }

  private chartsOf(base: VariantRow, chosen: VariantRow): Chart[] {
    const rows = chosen.row === base.row ? [base] : [base, chosen];
    const seriesOf = (read: typeof stepTimes): Chart['series'] =>
      rows
        .map(({ variant, row }) => ({
          name: variant.modes,
          points: read(this.record, row),
          baseline: row === base.row,
        }))
        .filter(({ points }) => points.y.some((value) => Number.isFinite(value)));
    return [
      {
        title: 'Step time by round',
        across: 'round',
        up: 'ms a step',
        kind: 'dots',
        fromZero: true,
        series: seriesOf(stepTimes),
      },
      {
        title: 'Loss',
        across: 'step from the same weights',
        up: 'loss',
        kind: 'lines',
        fromZero: false,
        series: seriesOf(losses),
      },
    ];
  }
}
