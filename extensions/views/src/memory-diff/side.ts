/** One of the two recordings: its series, who lives at its peak, and what of it is lit. */
import { Pyramid } from '../memory/pyramid';
import type { ChartView, Warp } from '../memory/scale';
import { readSeries, type MemoryColumns, type Series } from '../memory/series';
import { blocksAtPeak } from './groups';
import { namingOf, type By, type Naming } from './naming';

export class Side {
  readonly series: Series;
  readonly blocks: readonly number[];
  /** What its chart shows. */
  readonly view: ChartView;
  private readonly highest: Pyramid;
  private readonly namings = new Map<By, Naming>();

  constructor(readonly record: MemoryColumns) {
    this.series = readSeries(record);
    this.blocks = blocksAtPeak(record);
    this.highest = new Pyramid(this.series.total);
    const { reserved } = this.series;
    this.view = {
      record,
      series: this.series,
      all: this.series,
      highest: this.highest,
      allHighest: this.highest,
      reservedHighest: reserved ? new Pyramid(reserved) : null,
      axis: 'events',
      from: 0,
      to: this.series.length - 1,
      scrubber: -1,
      hover: null,
      brush: null,
      hidden: new Set(),
      filtered: false,
    };
  }

  /** The most bytes that its chart has to show. */
  get most(): number {
    const { reserved, most } = this.series;
    return reserved?.reduce((largest, bytes) => Math.max(largest, bytes), most) ?? most;
  }

  /** Puts its chart on the scales that it shares with the other one. */
  share(warp: Warp, least: number): void {
    this.view.warp = warp;
    this.view.least = least;
  }

  naming(by: By): Naming {
    const known = this.namings.get(by) ?? namingOf(this.record, by);
    this.namings.set(by, known);
    return known;
  }

  /** Lights the blocks of one group over the whole recording; null for none. */
  light(by: By, what: string | null): void {
    const { view } = this;
    const naming = this.naming(by);
    view.filtered = what !== null;
    view.series =
      what === null
        ? this.series
        : readSeries(this.record, (block: number) => naming(block) === what);
    view.highest = what === null ? this.highest : new Pyramid(view.series.total);
  }
}
