/** Two recordings as the view looks at them: what differs, by what, and what is chosen of it. */
import type { MemoryColumns } from '../memory/series';
import { align } from './align';
import { changesOf, type Change } from './groups';
import { BY, type By } from './naming';
import { sentenceOf } from './sentence';
import { Side } from './side';

/** What the list shows. */
export interface Rows {
  rows: readonly Change[];
  /** Groups that are the same in both, and left out. */
  same: number;
}

export class Pair {
  readonly a: Side;
  readonly b: Side;
  readonly sentence: string;
  /** Pairs of phases that stand below each other. */
  readonly paired: number;
  by: By = 'category';
  query = '';
  /** Whether what did not change is listed too. */
  showSame = false;
  selected: string | null = null;
  private readonly known = new Map<By, Change[]>();

  constructor(a: MemoryColumns, b: MemoryColumns) {
    this.a = new Side(a);
    this.b = new Side(b);
    const alignment = align(a, b);
    const least = Math.max(this.a.most, this.b.most);
    this.a.share(alignment.a, least);
    this.b.share(alignment.b, least);
    this.paired = alignment.paired;
    this.sentence = sentenceOf(this.a, this.b);
    this.by = this.firstUseful();
  }

  /** Bytes by which B's peak is higher. */
  get change(): number {
    return this.b.record.peak_bytes - this.a.record.peak_bytes;
  }

  /** Whether the peaks are made of the same, whatever they are grouped by. */
  get isSame(): boolean {
    return BY.every((by) => this.changes(by).every(({ change }) => change === 0));
  }

  /** Every group, the largest change first. */
  changes(by: By = this.by): Change[] {
    const known = this.known.get(by) ?? changesOf(this.named(this.a, by), this.named(this.b, by));
    this.known.set(by, known);
    return known;
  }

  /** What passes the filter. */
  rows(): Rows {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = this.changes().filter(({ what }) => {
      const text = what.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const rows = this.showSame ? fits : fits.filter(({ change }) => change !== 0);
    return { rows, same: fits.filter(({ change }) => change === 0).length };
  }

  /** The chosen group; null where none is. */
  get chosen(): Change | null {
    return this.changes().find(({ what }) => what === this.selected) ?? null;
  }

  /** Lights one group in both recordings; null for none. */
  select(what: string | null): void {
    this.selected = what;
    for (const side of [this.a, this.b]) side.light(this.by, what);
  }

  /** Groups otherwise; what was chosen is not. */
  group(by: By): void {
    if (by === this.by) return;
    this.by = by;
    this.select(null);
  }

  /** What the chosen group is made of. */
  within(by: By): Change[] {
    const [a, b] = [this.a, this.b].map((side) => {
      const own = side.naming(this.by);
      const blocks = side.blocks.filter((block) => own(block) === this.selected);
      return { record: side.record, blocks, naming: side.naming(by) };
    });
    return a && b ? changesOf(a, b) : [];
  }

  private named(side: Side, by: By) {
    return { record: side.record, blocks: side.blocks, naming: side.naming(by) };
  }

  /** The first grouping with more than one group. */
  private firstUseful(): By {
    return BY.find((by) => this.changes(by).length > 1) ?? 'category';
  }
}
