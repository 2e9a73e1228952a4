/** One model of a comparison: what it came to, its table, and the chosen arm beside the baseline. */
import type { CompareRecord } from '@torch-workbench/records';
import { h } from '../dom';
import { shorten } from '../graph/format';
import { type Chart, chartOf } from './charts';
import { type ArmRow, armsOf, losses, stepTimes, worthALook } from './report';
import { ArmTable } from './table';
import { verdict } from './words';

const BESIDE = 700;
const GAP = 16;

export class ModelSection {
  readonly element: HTMLElement;
  private readonly arms: readonly ArmRow[];
  private readonly table: ArmTable;
  private readonly detail = h('div', { class: 'wv-detail', role: 'region' });
  private chosen: ArmRow | null = null;
  private width = 0;

  constructor(
    private readonly record: CompareRecord,
    model: string,
    named: boolean,
    private readonly say: (text: string) => void,
  ) {
    this.arms = armsOf(record, model);
    const said = h('p', { class: 'wv-verdict' }, verdict(record, model));
    const label = named ? `Modes of ${shorten(model, 80)}` : 'Modes';
    this.table = new ArmTable(this.arms, label, (arm) => this.choose(arm), say);
    this.element = h('section', { 'aria-label': label });
    if (named) this.element.append(h('h3', {}, shorten(model, 80)));
    this.element.append(said, this.table.element, this.detail);
    const first = worthALook(this.arms);
    this.chosen = first;
    this.table.mark(first?.row ?? null);
  }

  /** Draws what has a width of its own. */
  resize(width: number): void {
    if (width === this.width) return;
    this.width = width;
    this.draw();
  }

  private choose(arm: ArmRow): void {
    this.chosen = arm;
    this.table.mark(arm.row);
    this.draw();
    this.say(`${arm.arm.modes} chosen`);
  }

  private draw(): void {
    const { chosen, detail } = this;
    const base = this.arms[0];
    detail.hidden = !chosen || !base;
    if (!chosen || !base) return;
    const beside = chosen.row === base.row ? '' : ` against ${base.arm.modes}`;
    detail.setAttribute('aria-label', `${chosen.arm.modes}${beside}`);
    const charts = this.chartsOf(base, chosen).filter(({ series }) => series.length > 0);
    const notes = chosen.arm.notes.map((note) => h('p', { class: 'wv-note' }, note));
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

  private chartsOf(base: ArmRow, chosen: ArmRow): Chart[] {
    const rows = chosen.row === base.row ? [base] : [base, chosen];
    const seriesOf = (read: typeof stepTimes): Chart['series'] =>
      rows
        .map(({ arm, row }) => ({
          name: arm.modes,
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
