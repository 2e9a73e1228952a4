/** Who holds memory at the scrubber: a title with the sum, and the largest blocks. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, plural } from '../graph/format';
import { ROWS_MOVING, type Model } from './model';
import { holdersTable } from './tables';

const SETTLED_MS = 120;

export class HoldersList {
  private readonly title = h('div', { class: 'wv-part' });
  private readonly rows = h('div', { class: 'wv-rows' });
  private timer = 0;
  readonly elements = [this.title, this.rows] as const;

  constructor(private readonly onSelect: (block: number) => void) {}

  dispose(): void {
    clearTimeout(this.timer);
  }

  get hidden(): boolean {
    return this.rows.hidden;
  }

  set hidden(hidden: boolean) {
    this.title.hidden = this.rows.hidden = hidden;
  }

  /** Lists all rows at once, or, while the scrubber moves, those in sight and the rest after it. */
  show(model: Model, selected: number | null, moving = false): void {
    clearTimeout(this.timer);
    if (moving) this.timer = window.setTimeout(() => this.show(model, selected), SETTLED_MS);
    const { record, series, view } = model;
    const holders = moving ? model.holders(ROWS_MOVING) : model.holders();
    const total = series.total[view.scrubber] ?? 0;
    const scroll = this.rows.scrollTop;
    const focused = this.rows.contains(document.activeElement);
    this.rows.replaceChildren(
      holdersTable(record, holders, view.scrubber, total, selected, this.onSelect),
    );
    this.rows.scrollTop = scroll;
    const row = this.rows.querySelector<HTMLElement>(`[data-block="${selected ?? ''}"]`);
    if (focused) row?.focus({ preventScroll: true });
    const peak = view.scrubber === record.peak_event + 1;
    const moment = peak ? 'at the peak' : `after event ${formatCount(view.scrubber)}`;
    const count = `${plural(holders.count, 'block')}, ${formatBytes(holders.bytes)} of ${formatBytes(total)}`;
    this.title.replaceChildren(h('b', {}, `Who holds memory ${moment}`), h('span', {}, count));
  }
}
