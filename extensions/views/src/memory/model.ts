/** A record as the view looks at it: series, what lives where, and what passes the filter. */
import { holdersAt, type Holders } from './blocks';
import { matcher } from './filter';
import { LiveBlocks } from './live';
import { momentAt, type Moment } from './moment';
import { lastRefusal, refusalAt } from './refusals';
import { rulesOf, type Rules } from './rules';
import { showOnly, wholeView, type ChartView } from './scale';
import { readSeries, timeAt, type MemoryColumns, type Series } from './series';

/** Rows of the list of holders; fewer while the scrubber moves. */
const ROWS = 200;
export const ROWS_MOVING = 24;

/** A part of the blocks that a person chose to look at alone, and what to call it. */
export interface Within {
  label: string;
  fits: (block: number) => boolean;
}

export class Model {
  readonly series: Series;
  readonly live: LiveBlocks;
  readonly view: ChartView;
  readonly hasSegments: boolean;
  readonly rules: Rules;
  readonly hidden = new Set<number>();
  query = '';
  within: Within | null = null;
  fits: (block: number) => boolean = () => true;
  private latest: Moment | null = null;
  private peak: Moment | null = null;

  constructor(readonly record: MemoryColumns) {
    this.series = readSeries(record);
    this.live = new LiveBlocks(record);
    this.rules = rulesOf(record);
    this.hasSegments = record.segment_bytes.length > 0;
    const last = this.series.length - 1;
    const refused = lastRefusal(record);
    const first = refused === null ? record.peak_event : (record.oom_event[refused] ?? 0);
    const clock = this.hasSegments && timeAt(record, last) > 0;
    this.view = {
      ...wholeView(record, this.series),
      axis: clock ? 'time' : 'events',
      scrubber: Math.min(first + 1, last),
      hidden: this.hidden,
    };
  }

  /** Takes what was typed; the chart then shows those blocks alone. */
  filter(query: string): void {
    this.query = query.trim();
    const { record, view, hidden } = this;
    const also = this.within?.fits ?? null;
    this.fits = matcher(record, { hidden, query, also });
    const some = this.query !== '' || also !== null;
    showOnly(
      view,
      some ? readSeries(record, matcher(record, { hidden: NONE, query, also })) : null,
    );
  }

  /** The refused request that the scrubber stands at. */
  get refusal(): number | null {
    return refusalAt(this.record, this.view.scrubber);
  }

  get isFiltered(): boolean {
    return this.query !== '' || this.within !== null || this.hidden.size > 0;
  }

  /** The allocator at a position; the last one and the peak's are kept. */
  moment(position = this.view.scrubber): Moment {
    if (this.latest?.position === position) return this.latest;
    const peak = this.record.peak_event + 1;
    const { record, live, rules } = this;
    if (position === peak) return (this.peak ??= momentAt(record, live, peak, rules));
    this.latest = momentAt(record, live, position, rules);
    return this.latest;
  }

  holders(most = ROWS): Holders {
    return holdersAt(this.record, this.live, this.view.scrubber, this.fits, most);
  }

  /** Shows [from, to] of the recording, kept inside it. */
  range(from: number, to: number): void {
    const { view } = this;
    const last = view.all.length - 1;
    const span = Math.max(Math.min(last, 4), Math.min(last, to - from));
    view.from = Math.round(Math.max(0, Math.min(last - span, from)));
    view.to = Math.round(Math.min(last, view.from + span));
  }

  /** Moves the scrubber, and what is shown with it where it would leave it. */
  scrub(position: number): void {
    const { view } = this;
    view.scrubber = Math.max(0, Math.min(view.all.length - 1, Math.round(position)));
    if (view.scrubber >= view.from && view.scrubber <= view.to) return;
    const half = (view.to - view.from) / 2;
    this.range(view.scrubber - half, view.scrubber + half);
  }
}

const NONE: ReadonlySet<number> = new Set();
