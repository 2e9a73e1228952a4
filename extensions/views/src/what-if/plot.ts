/**
 * The answers as a table whose first column of figures is a dot plot: filled circle as recorded,
 * circle by certified rules, diamond by rules no trace has confirmed, bar an interval.
 */
import { h, s } from '../dom';
import { formatBytes } from '../graph/format';
import { ticks } from '../memory/scale';
import type { Answer, NamedRow, Row } from './rows';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export const BASES = {
  recorded: 'as recorded',
  certified: 'certified rules',
  uncertified: 'uncertified ◇',
} as const;
/** A GPU that is larger than that many times the largest peak is named, not drawn. */
const FAR = 1.7;

interface Axis {
  from: number;
  to: number;
  unit: number;
  /** What the chosen GPU leaves the allocator; -1 for none. */
  card: number;
  recorded: number;
}

/** What a figure is based on, or its bounds. */
function basisOf(row: Row, unit: number): string {
  if (row.peak_low === row.peak_high) return BASES[row.basis];
  const mark = row.basis === 'uncertified' ? ' ◇' : '';
  return `${inUnit(row.peak_low, unit, 2)} to ${inUnit(row.peak_high, unit, 2)}${mark}`;
}

function inUnit(bytes: number, unit: number, digits = 1): string {
  const value = Math.abs(bytes) / 1024 ** unit;
  return `${bytes < 0 ? '−' : ''}${value.toFixed(unit === 0 ? 0 : digits)}`;
}

function axisOf(rows: readonly Row[], recorded: number): Axis {
  const good = rows.filter(({ error }) => error === '');
  const peaks = good.flatMap(({ peak_low, peak_high }) => [peak_low, peak_high]);
  const least = Math.min(recorded, ...peaks);
  const most = Math.max(recorded, ...peaks, 1);
  const card = Math.max(-1, ...good.map(({ usable_bytes }) => usable_bytes));
  const near = card >= 0 && card <= most * FAR;
  const last = near ? Math.max(most, card) : most;
  const first = near ? Math.min(least, card) : least;
  const room = Math.max((last - first) * 0.12, last * 0.04);
  return {
    from: Math.max(0, first - room),
    to: last + room,
    unit: unitOf(least, last),
    card,
    recorded,
  };
}

/** The unit in which the least has digits enough, and the most not too many. */
function unitOf(least: number, most: number): number {
  const of = (bytes: number): number => Math.floor(Math.log2(Math.max(1, bytes)) / 10);
  const unit = most / 1024 ** of(least) < 10_000 ? of(least) : of(most);
  return Math.min(UNITS.length - 1, unit);
}

const percent = (axis: Axis, bytes: number): string =>
  `${(100 * (bytes - axis.from)) / (axis.to - axis.from)}%`;

/** Text alternative and drawing in one: the drawing itself says nothing to a screen reader. */
export function plot(
  names: readonly NamedRow[],
  { rows }: Answer,
  chosen: number,
  recorded: number,
  onChoose: (row: NamedRow) => void,
): HTMLElement {
  const axis = axisOf(rows, recorded);
  const body = h('tbody', {});
  names.forEach((name, at) => {
    const row = rows[at];
    if (row) body.append(line(name, row, axis, at === chosen, onChoose));
  });
  const caption = h('caption', { class: 'wv-sr' }, 'Predicted peak of reserved memory');
  const head = h('tr', {}, h('th', { scope: 'col' }, h('span', { class: 'wv-sr' }, 'What')));
  head.append(h('th', { class: 'wv-wi-axis', 'aria-hidden': 'true' }, scale(axis)));
  for (const text of [`peak, ${UNITS[axis.unit]}`, 'change', 'interval or basis'])
    head.append(h('th', { scope: 'col' }, text));
  return h('table', { class: 'wv-wi-plot' }, caption, h('thead', {}, head), body);
}

/** The GPU on a line of its own: its name never meets the numbers of the axis. */
function scale(axis: Axis): SVGSVGElement {
  const svg = s('svg', { class: 'wv-wi-svg' });
  const said = (at: number, text: string, y: number, kind: string | null): void => {
    const share = (at - axis.from) / (axis.to - axis.from);
    const anchor = share > 0.9 ? 'end' : share < 0.1 ? 'start' : 'middle';
    svg.append(s('text', { x: percent(axis, at), y, 'text-anchor': anchor, class: kind }, text));
  };
  for (const at of marks(axis))
    said(at, inUnit(at, axis.unit, at % 1024 ** axis.unit === 0 ? 0 : 1), 26, null);
  if (axis.card > 0 && axis.card < axis.to)
    said(axis.card, `${inUnit(axis.card, axis.unit)} usable`, 11, 'wv-wi-bold');
  return svg;
}

function marks(axis: Axis): number[] {
  const one = 1024 ** axis.unit;
  return ticks(axis.from / one, axis.to / one, 4).map((at) => at * one);
}

function line(
  name: NamedRow,
  row: Row,
  axis: Axis,
  chosen: boolean,
  onChoose: (row: NamedRow) => void,
): HTMLElement {
  const choose = name.choice
    ? h('button', { type: 'button', class: 'wv-wi-name', onclick: () => onChoose(name) }, name.name)
    : name.name;
  const element = h('tr', { 'aria-current': chosen ? 'true' : null });
  element.append(h('th', { scope: 'row' }, choose));
  if (row.error) {
    element.append(h('td', { colspan: 4, class: 'wv-wi-error' }, row.error.slice(0, 300)));
    return element;
  }
  const change = row.peak_high - axis.recorded;
  const sign = change > 0 ? '+' : '';
  element.title = row.sentence;
  element.append(
    h('td', { class: 'wv-wi-axis', 'aria-hidden': 'true' }, dot(row, axis)),
    h(
      'td',
      {},
      h('b', {}, `${row.got_past ? '≥ ' : ''}${inUnit(row.peak_high, axis.unit)}`),
      row.fits || row.got_past ? null : outSign(),
    ),
    h('td', {}, change === 0 ? '' : `${sign}${inUnit(change, axis.unit)}`),
    h('td', {}, basisOf(row, axis.unit)),
  );
  return element;
}

function outSign(): HTMLElement {
  const said = h('span', { class: 'wv-sr' }, 'does not fit');
  return h('span', { class: 'wv-wi-out', title: 'Does not fit' }, ' ✕', said);
}

function dot(row: Row, axis: Axis): SVGSVGElement {
  const svg = s('svg', { class: 'wv-wi-svg' });
  const rule = (at: number, kind: string): void => {
    if (at > axis.from && at < axis.to)
      svg.append(
        s('line', { x1: percent(axis, at), x2: percent(axis, at), y1: 0, y2: '100%', class: kind }),
      );
  };
  for (const at of marks(axis)) rule(at, 'wv-wi-grid');
  rule(axis.recorded, 'wv-wi-then');
  rule(row.usable_bytes, 'wv-wi-limit');
  if (row.peak_low !== row.peak_high) svg.append(...interval(row, axis));
  else {
    const mark = s('svg', { x: percent(axis, row.peak_high), y: '50%', overflow: 'visible' });
    const diamond = row.basis === 'uncertified';
    mark.append(
      diamond
        ? s('path', { d: 'M0-5.5 5.5 0 0 5.5-5.5 0Z', class: 'wv-wi-mark' })
        : s('circle', { r: 4.5, class: `wv-wi-mark wv-wi-${row.basis}` }),
    );
    svg.append(mark);
  }
  return svg;
}

/** A bar of the interval's true width, never narrower than three pixels. */
function interval(row: Row, axis: Axis): SVGElement[] {
  const span = (row.peak_high - row.peak_low) / (axis.to - axis.from);
  const place = { y: '20%', height: '60%', class: 'wv-wi-bar' };
  const least = { ...place, x: percent(axis, row.peak_low), width: 3 };
  const whole = { ...place, x: percent(axis, row.peak_low), width: `${100 * span}%` };
  return [s('rect', least), s('rect', whole)];
}

/** `52.1 GiB`, or `51.9 to 52.1 GiB`. */
export function peakOf(row: Row): string {
  const [low, high] = [formatBytes(row.peak_low), formatBytes(row.peak_high)];
  return low === high ? high : `${low} to ${high}`;
}
