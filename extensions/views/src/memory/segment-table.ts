/** The segment map as a table: the same numbers, sortable, with totals; for screen readers too. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, formatShare } from '../graph/format';
import { fullnessOf } from './map-groups';
import { releasableOf, type Moment, type Segment } from './moment';
import type { Rules } from './rules';
import { CATEGORIES, timeAt, type MemoryColumns } from './series';
import { swatch } from './tables';

interface Row {
  name: string;
  segments: number;
  full: number;
  partly: number;
  empty: number;
  reserved: number;
  categories: number[];
  pinned: number;
  /** Free in private pools. */
  kept: number;
  releasable: number;
  used: number;
}

const LEAST = 3;

function rowOf(
  record: MemoryColumns,
  rules: Rules,
  name: string,
  members: readonly Segment[],
): Row {
  const count = (kind: string): number => members.filter((one) => fullnessOf(one) === kind).length;
  const sum = (of: (segment: Segment) => number): number =>
    members.reduce((all, one) => all + of(one), 0);
  const reserved = sum(({ bytes }) => bytes);
  const used = sum((one) => one.used);
  const releasable = sum((one) => releasableOf(record, one, rules));
  const kept = sum(({ pool, bytes, used: taken }) => (pool === 0 ? 0 : bytes - taken));
  return {
    name,
    segments: members.length,
    full: count('full'),
    partly: count('partly'),
    empty: count('empty'),
    reserved,
    categories: CATEGORIES.map((_, category) => sum((one) => one.categories[category] ?? 0)),
    pinned: reserved - used - kept - releasable,
    kept,
    releasable,
    used,
  };
}

/** A row for each segment size, the largest first, one for the rest, one for the small pool. */
export function segmentRows(record: MemoryColumns, moment: Moment): Row[] {
  const bySize = new Map<number, Segment[]>();
  const small: Segment[] = [];
  const { segments, rules } = moment;
  for (const segment of segments)
    if (segment.small) small.push(segment);
    else bySize.set(segment.bytes, [...(bySize.get(segment.bytes) ?? []), segment]);
  const rows: Row[] = [];
  const rest: Segment[] = [];
  for (const [bytes, members] of [...bySize].sort((a, b) => b[0] - a[0]))
    if (members.length < LEAST && bySize.size > 6) rest.push(...members);
    else rows.push(rowOf(record, rules, formatBytes(bytes).replace('.0 ', ' '), members));
  if (rest.length > 0) rows.push(rowOf(record, rules, 'Other sizes', rest));
  if (small.length > 0) rows.push(rowOf(record, rules, 'Small pool', small));
  return rows;
}

interface Column {
  name: string;
  head: () => Node | string;
  value: (row: Row) => number;
  text: (row: Row) => string;
}

function columnsOf(moment: Moment): Column[] {
  const bytes = (value: number): string => (value === 0 ? '0' : formatBytes(value));
  const plain = (name: string, value: (row: Row) => number, bytewise = false): Column => ({
    name,
    head: () => name,
    value,
    text: (row) => (bytewise ? bytes(value(row)) : formatCount(value(row))),
  });
  const present = CATEGORIES.map((_, category) => category).filter((category) =>
    moment.segments.some(({ categories }) => (categories[category] ?? 0) > 0),
  );
  const pools = moment.segments.some(({ pool }) => pool !== 0);
  return [
    plain('Segments', (row) => row.segments),
    plain('full', (row) => row.full),
    plain('partly free', (row) => row.partly),
    plain('empty', (row) => row.empty),
    plain('Reserved', (row) => row.reserved, true),
    ...present.map((category) => ({
      ...plain(CATEGORIES[category] ?? '', (row) => row.categories[category] ?? 0, true),
      head: () => swatch(category),
    })),
    plain('Free, pinned', (row) => row.pinned, true),
    ...(pools ? [plain('Free, private pool', (row) => row.kept, true)] : []),
    plain('Free, releasable', (row) => row.releasable, true),
    {
      ...plain('Used', (row) => row.used / Math.max(1, row.reserved)),
      text: (row) => formatShare(row.used / Math.max(1, row.reserved)),
    },
  ];
}

export class SegmentTable {
  readonly element = h('div', {});
  private sort: { column: string; up: boolean } = { column: '', up: false };

  show(record: MemoryColumns, moment: Moment): void {
    const columns = columnsOf(moment);
    const rows = segmentRows(record, moment);
    const by = columns.find(({ name }) => name === this.sort.column);
    if (by) rows.sort((a, b) => (by.value(a) - by.value(b)) * (this.sort.up ? 1 : -1));
    const again = (name: string): void => {
      const same = this.sort.column === name;
      this.sort = same && this.sort.up ? { column: '', up: false } : { column: name, up: same };
      this.show(record, moment);
      this.element.querySelector<HTMLElement>(`[data-column="${name}"]`)?.focus();
    };
    const head = h('tr', {}, h('th', { scope: 'col' }, 'Segment size'));
    for (const column of columns) head.append(this.heading(column, again));
    const total = rowOf(record, moment.rules, 'All', moment.segments);
    const body = h('tbody', {}, ...rows.map((row) => line(row, columns)));
    const foot = h('tfoot', {}, line(total, columns));
    const when = `Segments at ${timeAt(record, moment.position).toFixed(1)} ms, by size. A heading sorts.`;
    const caption = h('caption', {}, when);
    const table = h('table', { class: 'wv-sizes' }, caption, h('thead', {}, head), body, foot);
    this.element.replaceChildren(table);
  }

  private heading(column: Column, onSort: (name: string) => void): HTMLElement {
    const active = this.sort.column === column.name;
    const sorted = active ? (this.sort.up ? 'ascending' : 'descending') : 'none';
    const mark = active ? (this.sort.up ? ' ▲' : ' ▼') : '';
    const label = h(
      'button',
      { type: 'button', class: 'wv-sort', 'data-column': column.name },
      column.head(),
      mark,
    );
    label.addEventListener('click', () => onSort(column.name));
    return h('th', { scope: 'col', 'aria-sort': sorted }, label);
  }
}

function line(row: Row, columns: readonly Column[]): HTMLElement {
  const cells = columns.map((column) => {
    const text = column.text(row);
    return h('td', { class: text === '0' ? 'wv-note' : null }, text);
  });
  return h('tr', {}, h('th', { scope: 'row' }, row.name), ...cells);
}
