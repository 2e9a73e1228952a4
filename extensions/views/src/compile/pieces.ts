/** What was compiled: a row for every piece of code, below the region that it belongs to. */
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { link } from '../graph/dom';
import { formatCount, plural, shorten } from '../graph/format';
import { More } from './more';
import type { Piece, Report } from './report';
import { phaseNames, placeLabel, seconds } from './words';

const COLUMNS = ['Graph', 'Operations', 'Guards', 'Kernels', 'Launches', 'Time', 'Caches'] as const;
const TITLES: Readonly<Partial<Record<(typeof COLUMNS)[number], string>>> = {
  Guards: 'Conditions that are checked at every call',
  Kernels: 'Generated kernels, and calls of library functions',
  Launches: 'Kernels and library functions that one forward and one backward call',
  Caches: 'Look-ups in the caches on disk that found what they looked for',
};

export interface PieceEvents {
  select: (piece: Piece) => void;
  /** A person wants to see where the region is written. */
  go: (region: number, from: HTMLElement) => void;
}

type Row = { region: number } | { piece: Piece };

export class Pieces {
  readonly element = h('section', { class: 'wv-pieces', 'aria-label': 'Graphs' });
  private readonly body = h('tbody', {});
  private readonly count = h('span', { class: 'wv-note' });
  private readonly more = new More<Row>(this.body, (row) => this.rowOf(row));
  private readonly nothing = h(
    'p',
    { class: 'wv-nothing', hidden: true },
    'No graph is called so.',
  );
  private readonly table: HTMLElement;
  private readonly pieces = new Map<Element, Piece>();
  private rows: readonly HTMLElement[] = [];
  private report: Report | null = null;
  private longest = 0;
  private selected: number | null = null;

  constructor(private readonly events: PieceEvents) {
    const title = h('h3', {}, 'Regions and their graphs', this.count);
    title.append(h('span', { class: 'wv-space' }), h('kbd', { 'aria-hidden': 'true' }, 'G'));
    const heads = COLUMNS.map((name) =>
      h('th', { scope: 'col', title: TITLES[name] ?? null }, name),
    );
    this.table = h(
      'table',
      { role: 'grid', 'aria-label': 'Graphs by region' },
      h('thead', {}, h('tr', {}, ...heads)),
      this.body,
    );
    this.element.append(title, this.table, this.nothing, this.more.element);
    roving(this.body, () => this.rows);
    this.body.addEventListener('focusin', ({ target }) => this.choose(target));
    this.body.addEventListener('click', ({ target }) => this.choose(target));
  }

  show(report: Report, query: string): void {
    this.report = report;
    this.longest = Math.max(...report.pieces.map((piece) => total(piece)), Number.MIN_VALUE);
    const found = report.pieces.filter(({ text }) => text.includes(query));
    const { length } = report.pieces;
    this.count.textContent = query
      ? `${formatCount(found.length)} of ${formatCount(length)}`
      : plural(report.record.regions.length, 'region');
    this.pieces.clear();
    this.more.show(rowsOf(found), () => this.settle());
    this.nothing.hidden = found.length > 0;
    this.table.hidden = found.length === 0;
  }

  /** Marks the chosen row, without listing anew. */
  mark(selected: number | null): void {
    this.selected = selected;
    this.settle();
  }

  focus(): void {
    (this.rows.find(({ tabIndex }) => tabIndex === 0) ?? this.rows[0])?.focus();
  }

  private choose(target: EventTarget | null): void {
    const row = target instanceof Element ? target.closest('tr') : null;
    const piece = row && this.pieces.get(row);
    if (piece && piece.row !== this.selected) this.events.select(piece);
  }

  private settle(): void {
    this.rows = [...this.pieces.keys()].filter((row) => row instanceof HTMLElement);
    let stop = this.rows[0];
    for (const row of this.rows) {
      const chosen = this.pieces.get(row)?.row === this.selected;
      row.setAttribute('aria-selected', String(chosen));
      if (chosen) stop = row;
    }
    if (stop) setStop(this.rows, stop);
  }

  private rowOf(row: Row): HTMLElement {
    return 'piece' in row ? this.pieceRow(row.piece) : this.regionRow(row.region);
  }

  private regionRow(row: number): HTMLElement {
    const { report } = this;
    const region = report?.record.regions[row];
    const source = report?.source(region?.source ?? -1) ?? null;
    const name = h('b', { title: region?.label ?? '' }, shorten(region?.label ?? '', 90));
    const cell = h('th', { colspan: COLUMNS.length, scope: 'rowgroup' }, name);
    if (source) {
      const to = link(placeLabel(source), () => this.events.go(row, to), 'Go to this line');
      cell.append(to);
    }
    if (region?.num_graphs === 0) cell.append(h('span', { class: 'wv-pill' }, 'runs as Python'));
    return h('tr', { class: 'wv-group' }, cell);
  }

  private pieceRow(piece: Piece): HTMLElement {
    const { operations, guards, kernels, hits, lookups, launches, variant, name, error } = piece;
    const label = h('td', {}, name || 'graph');
    if (variant > 0) label.append(h('span', { class: 'wv-pill' }, `recompile ${variant}`));
    if (operations === 0) label.append(h('span', { class: 'wv-pill' }, 'no graph'));
    if (error) label.title = error;
    const launched = launches.filter((count) => count >= 0).map(formatCount);
    const cells = [
      formatCount(operations),
      formatCount(guards),
      formatCount(kernels.length),
      launched.join(' + '),
    ].map((text) => h('td', {}, text));
    const hitsCell = h('td', {}, lookups > 0 ? `${hits} of ${lookups}` : '');
    const row = h('tr', { tabindex: -1 }, label, ...cells, this.time(piece), hitsCell);
    this.pieces.set(row, piece);
    return row;
  }

  private time(piece: Piece): HTMLElement {
    const names = this.report ? phaseNames(this.report.record) : [];
    const all = total(piece);
    const bars = piece.seconds.map((time, at) => {
      const width = `width:${((100 * time) / this.longest).toFixed(2)}%`;
      return h('i', { class: `wv-p${at}`, style: width });
    });
    const said = piece.seconds.map((time, at) => `${names[at] ?? ''} ${seconds(time)}`).join(', ');
    const bar = h('span', { class: 'wv-stack', 'aria-hidden': 'true' }, ...bars);
    return h('td', { class: 'wv-took', title: said }, bar, h('span', {}, seconds(all)));
  }
}

/** Every region before its pieces, in the order in which regions were first compiled. */
function rowsOf(pieces: readonly Piece[]): Row[] {
  const groups = new Map<number, Piece[]>();
  for (const piece of pieces) {
    const group = groups.get(piece.region);
    if (group) group.push(piece);
    else groups.set(piece.region, [piece]);
  }
  return [...groups].flatMap(([region, own]): Row[] => [
    { region },
    ...own.map((piece) => ({ piece })),
  ]);
}

function total({ seconds: phases }: Piece): number {
  return phases.reduce((all, one) => all + one, 0);
}
