/** One row of the list of changes: a name, what A and B have of it, and a bar of the difference. */
import { signedBytes } from '../diff/words';
import { h } from '../graph/dom';
import { formatBytes, formatCount, shorten } from '../graph/format';
import { CATEGORIES, categoryLabel } from '../memory/series';
import { swatch } from '../memory/tables';
import type { Change } from './groups';
import { INTO, type By } from './naming';
import type { Pair } from './pair';
import { shareOf } from './words';

/** Longest name; its middle gives way. */
const NAME = 72;

/** Where the zero of the bars is, and how wide a byte is, in percent. */
export interface Scale {
  zero: number;
  perByte: number;
}

export function scaleOf(changes: readonly Change[]): Scale {
  let [least, most] = [0, 0];
  for (const { change } of changes) {
    least = Math.min(least, change);
    most = Math.max(most, change);
  }
  const perByte = 100 / Math.max(1, most - least);
  return { zero: -least * perByte, perByte };
}

/** A row that can be chosen. */
export function rowOf({ by, selected }: Pair, row: Change, scale: Scale): HTMLElement {
  const { what, change } = row;
  const name = h('td', { title: shorten(what, 1000) }, nameOf(by, what));
  return h(
    'tr',
    { tabindex: 0, 'data-what': what, 'aria-selected': String(what === selected) },
    name,
    ...cells(row, bar(change, scale)),
  );
}

/** What all of them come to; of those that a filter leaves, where there is one. */
export function totalOf({ a, b, query }: Pair, rows: readonly Change[]): HTMLElement {
  const sum = (of: (row: Change) => number): number => rows.reduce((all, row) => all + of(row), 0);
  const some = query.trim() !== '';
  const before = some ? sum((row) => row.before) : a.record.peak_bytes;
  const after = some ? sum((row) => row.after) : b.record.peak_bytes;
  const total: Change = {
    what: some ? 'Of those listed' : 'Peak',
    before,
    after,
    blocksBefore: some ? sum((row) => row.blocksBefore) : a.blocks.length,
    blocksAfter: some ? sum((row) => row.blocksAfter) : b.blocks.length,
    change: after - before,
  };
  return h('tr', {}, h('th', { scope: 'row' }, total.what), ...cells(total, null));
}

function cells(row: Change, bar: HTMLElement | null): HTMLElement[] {
  const { before, after, change, blocksBefore, blocksAfter } = row;
  const counts = [...new Set([blocksBefore, blocksAfter])].map(formatCount);
  const exact = (bytes: number): string => `${formatCount(bytes).replace('-', '−')} B`;
  return [
    h('td', { title: exact(before) }, formatBytes(before)),
    h('td', { title: exact(after) }, formatBytes(after)),
    h('td', { class: 'wv-change', title: exact(change) }, signedBytes(change)),
    h('td', { class: 'wv-barcell' }, bar),
    h('td', {}, shareOf(row)),
    h('td', {}, counts.join(' → ')),
  ];
}

/** What a row is called; of calls the innermost says most, and stands in full. */
export function nameOf(by: By, what: string): Node | string {
  if (by === 'category')
    return swatch(CATEGORIES.findIndex((_, category) => categoryLabel(category) === what));
  if (by !== 'stack') return shorten(what, NAME);
  const nameStart = what.lastIndexOf(INTO) < 0 ? 0 : what.lastIndexOf(INTO) + INTO.length;
  const outer = nameStart > 0 ? h('i', {}, shorten(what.slice(0, nameStart), 400)) : null;
  return h('span', { class: 'wv-calls' }, outer, h('b', {}, shorten(what.slice(nameStart), NAME)));
}

function bar(change: number, { zero, perByte }: Scale): HTMLElement {
  const wide = Math.abs(change) * perByte;
  const left = change < 0 ? zero - wide : zero;
  const fill = h('i', {
    class: change > 0 ? 'wv-more' : 'wv-less',
    style: `left:${left.toFixed(2)}%;width:${wide.toFixed(2)}%`,
  });
  const nothing = h('b', { style: `left:${zero.toFixed(2)}%` });
  return h('span', { class: 'wv-delta', 'aria-hidden': 'true' }, fill, nothing);
}
