/** One of the two recordings: its series, who lives at its peak, and what of it is lit. */
import { showOnly, wholeView, type ChartView, type Warp } from '../memory/scale';
import { readSeries, type MemoryColumns, type Series } from '../memory/series';
import { blocksAtPeak } from './groups';
import { namingOf, type By, type Naming } from './naming';

export class Side {
  readonly series: Series;
  readonly blocks: readonly number[];
  /** What its chart shows. */
  readonly view: ChartView;
  private readonly namings = new Map<By, Naming>();

  constructor(readonly record: MemoryColumns) {
    this.series = readSeries(record);
    this.blocks = blocksAtPeak(record);
    this.view = wholeView(record, this.series);
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
    const naming = this.naming(by);
    const lit = (block: number): boolean => naming(block) === what;
    showOnly(this.view, what === null ? null : readSeries(this.record, lit));
  }
}
