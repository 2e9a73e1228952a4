/** The memory view: live bytes by category over a step, the peak explained, and who holds it. */
import { button, h } from '../graph/dom';
import { formatBytes, formatCount, plural, shorten } from '../graph/format';
import type { Slots } from '../graph/mount';
import { followTheme, type Palette } from '../graph/theme';
import type { Dispose, Store } from '../store';
import { holdersAt } from './blocks';
import { Chart } from './chart';
import { inspectBlock, inspectCapture } from './inspector';
import { handleKey } from './keyboard';
import { Keys } from './keys';
import { segmentMap, type SegmentMap } from './segments';
import { peakSentence } from './sentence';
import { isLive, readSeries, timeAt, type MemoryColumns, type Series } from './series';
import { showMessage } from './status';
import { STYLE } from './style';
import { holdersTable, phaseTable } from './tables';
import type { ChartView } from './scale';

/** What the view shows; `error` is one sentence. */
export interface MemoryViewState {
  readonly record: MemoryColumns | null;
  readonly error: string | null;
}

const NARROW = 700;
const MEDIUM = 1150;
const ROWS = 200;

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<MemoryViewState, never>,
  { slots = {} }: { slots?: Slots } = {},
): Dispose {
  const view = new MemoryView(store, slots);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}

/** Everything on screen and what it does; `keyboard.ts` calls the public part. */
export class MemoryView {
  readonly element = h('div', { class: 'wv-view wv-memory' });
  private record: MemoryColumns | null = null;
  private series: Series | null = null;
  chartView: ChartView | null = null;
  selected: number | null = null;
  private hidden = new Set<number>();
  private table = false;
  private segments: SegmentMap | null = null;
  /** Null, and nothing drawn, until the view is in the page. */
  private palette: Palette | null = null;
  private readonly cleanup: (() => void)[] = [];
  private readonly title = h('span', { class: 'wv-title' });
  private readonly sentence = h('p', { class: 'wv-peak', style: 'margin:0' });
  private readonly keys = new Keys((category) => {
    if (!this.hidden.delete(category)) this.hidden.add(category);
    this.refresh();
  });
  private readonly rowsTitle = h('div', { class: 'wv-part' });
  private readonly rows = h('div', { class: 'wv-rows' });
  private readonly phases = h('div', { class: 'wv-rows', style: 'flex:none', hidden: true });
  private readonly main = h('div', { class: 'wv-main' });
  private readonly inspector = h('aside', { class: 'wv-inspector', 'aria-label': 'Details' });
  private readonly message = h('div', { class: 'wv-message', hidden: true });
  private readonly live = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });
  readonly search = h('input', {
    type: 'search',
    placeholder: 'Name, module, op, >1MiB',
    'aria-label': 'Filter blocks by name, module, operation, category or size',
    maxlength: 200,
  });
  private readonly tableButton = button(
    'Table',
    () => this.toggleTable(),
    { 'aria-pressed': 'false' },
    'T',
  );
  private readonly details = button('Details', () => this.setDetails(this.inspector.hidden), {});
  readonly chart = new Chart({
    scrub: (position) => this.scrub(position),
    hover: (position) => this.hover(position),
    range: (from, to) => this.range(from, to),
  });

  constructor(
    private readonly store: Store<MemoryViewState, never>,
    { lead = [], tail = [] }: Slots,
  ) {
    const bar = h('div', { class: 'wv-bar', role: 'toolbar', 'aria-label': 'Memory' });
    bar.append(...lead, this.title);
    const find = h(
      'label',
      { class: 'wv-find' },
      this.search,
      h('kbd', { 'aria-hidden': 'true' }, '/'),
    );
    bar.append(
      h('span', { class: 'wv-space' }),
      button('Peak', () => this.toPeak(), {}, 'End'),
    );
    bar.append(
      button('All', () => this.range(0, Infinity), { title: 'Show the whole recording' }, 'F'),
    );
    bar.append(find, this.tableButton, this.details, ...tail);
    this.main.append(
      this.sentence,
      this.keys.element,
      this.chart.element,
      this.phases,
      this.rowsTitle,
      this.rows,
    );
    const body = h('div', { class: 'wv-body' }, this.main, this.inspector, this.message);
    this.element.append(h('style', {}, STYLE), bar, body, this.live);
  }

  start(): void {
    this.element.addEventListener('keydown', (event) => handleKey(this, event));
    this.search.addEventListener('input', () => this.refresh());
    this.cleanup.push(
      followTheme(this.element, (palette) => {
        this.palette = palette;
        this.drawAll();
      }),
    );
    this.cleanup.push(this.store.subscribe(() => this.update()));
    if (typeof ResizeObserver === 'function') {
      const observer = new ResizeObserver(() => this.resize());
      observer.observe(this.element);
      observer.observe(this.main);
      this.cleanup.push(() => observer.disconnect());
    }
    this.update();
    this.resize();
  }

  dispose(): void {
    for (const end of this.cleanup) end();
    this.chart.dispose();
    this.element.remove();
  }

  private update(): void {
    const { record, error } = this.store.get();
    let problem = error;
    if (record !== this.record) {
      this.record = record;
      this.selected = null;
      this.hidden = new Set();
      this.segments?.element.remove();
      this.segments = null;
      try {
        this.open(record);
      } catch (reason) {
        this.series = this.chartView = null;
        problem = `This record cannot be drawn: ${String(reason)}`;
      }
    }
    this.showMessage(problem);
    this.refresh();
    this.drawAll();
  }

  private open(record: MemoryColumns | null): void {
    this.series = record && record.event_time_us.length > 0 ? readSeries(record) : null;
    this.chartView = null;
    if (!record || !this.series) return;
    this.keys.open(this.series);
    const scrubber = Math.min(record.peak_event + 1, this.series.length - 1);
    this.chartView = {
      record,
      series: this.series,
      from: 0,
      to: this.series.length - 1,
      scrubber,
      hover: null,
      brush: null,
      hidden: this.hidden,
    };
    if (record.segment_bytes.length > 0) {
      this.segments = segmentMap(record, (address) => this.selectAddress(address));
      this.main.insertBefore(this.segments.element, this.rowsTitle);
    }
    const title = shorten(record.title || 'Memory', 80);
    const said = record.step === null || title.endsWith(`step ${formatCount(record.step)}`); // by an experiment
    const step = said ? '' : ` · step ${formatCount(record.step ?? 0)}`;
    this.title.textContent = `${title}${step} · ${shorten(record.device, 20)}`;
    this.sentence.textContent = peakSentence(record, this.series);
    this.phases.replaceChildren(phaseTable(record, this.series));
  }

  private showMessage(error: string | null): void {
    const drawn = this.series !== null;
    this.main.style.visibility = drawn ? '' : 'hidden';
    showMessage(this.message, error, this.record, drawn);
    this.setDetails(!this.inspector.hidden);
  }

  scrub(position: number): void {
    const { chartView, record } = this;
    if (!chartView || !record) return;
    chartView.scrubber = Math.max(0, Math.min(chartView.series.length - 1, Math.round(position)));
    const { scrubber } = chartView;
    if (scrubber < chartView.from || scrubber > chartView.to) {
      const half = (chartView.to - chartView.from) / 2;
      this.range(scrubber - half, scrubber + half);
    }
    const bytes = formatBytes(chartView.series.total[scrubber] ?? 0);
    this.live.textContent = `event ${formatCount(scrubber)}, ${timeAt(record, scrubber).toFixed(1)} milliseconds, ${bytes}`;
    this.refresh();
  }

  private hover(position: number | null): void {
    if (!this.chartView || this.chartView.hover === position) return;
    this.chartView.hover = position;
    this.showKeys();
    this.chart.redraw();
  }

  range(from: number, to: number): void {
    const { chartView } = this;
    if (!chartView) return;
    const last = chartView.series.length - 1;
    const span = Math.max(Math.min(last, 4), Math.min(last, to - from));
    chartView.from = Math.max(0, Math.min(last - span, from));
    chartView.to = Math.min(last, chartView.from + span);
    this.chart.redraw();
  }

  toPeak(): void {
    if (this.record) this.scrub(this.record.peak_event + 1);
  }

  select(block: number): void {
    this.selected = this.selected === block ? null : block;
    if (this.selected !== null) this.setDetails(true);
    this.refresh();
    this.rows.querySelector<HTMLElement>(`[data-block="${block}"]`)?.focus({ preventScroll: true });
  }

  /** The block that lies at an address at the end of the recording. */
  private selectAddress(address: number): void {
    const { record, chartView } = this;
    if (!record || !chartView) return;
    const end = chartView.series.length - 1;
    for (let block = record.block_start.length - 1; block >= 0; block -= 1)
      if (record.block_address[block] === address && isLive(record, block, end)) {
        this.selected = null;
        if (!isLive(record, block, chartView.scrubber)) this.scrub(end);
        this.select(block);
        return;
      }
  }

  toggleTable(): void {
    this.table = !this.table;
    this.tableButton.setAttribute('aria-pressed', String(this.table));
    this.chart.element.hidden = this.table;
    this.phases.hidden = !this.table;
    if (!this.table) this.drawAll();
  }

  private setDetails(shown: boolean): void {
    this.inspector.hidden = !shown || this.series === null;
    this.details.setAttribute('aria-pressed', String(shown));
  }

  refresh(): void {
    const { record, series, chartView } = this;
    if (!record || !series || !chartView) return;
    const { scrubber } = chartView;
    const filter = { hidden: this.hidden, query: this.search.value };
    const holders = holdersAt(record, scrubber, filter, ROWS);
    const total = series.total[scrubber] ?? 0;
    const scroll = this.rows.scrollTop;
    this.rows.replaceChildren(
      holdersTable(record, holders, scrubber, total, this.selected, (block) => this.select(block)),
    );
    this.rows.scrollTop = scroll;
    const moment =
      scrubber === record.peak_event + 1 ? 'at the peak' : `after event ${formatCount(scrubber)}`;
    const count = `${plural(holders.count, 'block')}, ${formatBytes(holders.bytes)} of ${formatBytes(total)}`;
    this.rowsTitle.replaceChildren(h('b', {}, `Who holds memory ${moment}`), h('span', {}, count));
    if (this.selected === null) inspectCapture(this.inspector, record, series, scrubber);
    else inspectBlock(this.inspector, record, this.selected, scrubber);
    this.showKeys();
    this.chart.redraw();
  }

  /** The legend: bytes under the pointer, else at the scrubber. */
  private showKeys(): void {
    const { series, chartView } = this;
    if (series && chartView)
      this.keys.show(series, chartView.hover ?? chartView.scrubber, this.hidden);
  }

  private resize(): void {
    const width = this.element.clientWidth || 1000;
    const size = width < NARROW ? 'narrow' : width < MEDIUM ? 'medium' : 'wide';
    if (this.element.dataset['size'] !== size) {
      this.element.dataset['size'] = size;
      this.setDetails(size === 'wide');
    }
    this.drawAll();
  }

  private drawAll(): void {
    if (!this.palette) return;
    this.chart.show(this.chartView, this.palette);
    this.segments?.draw(this.palette, Math.max(200, this.main.clientWidth - 2));
  }
}
