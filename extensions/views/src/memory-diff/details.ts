/** Beside the list: what the two recordings are, or what a chosen group is made of. */
import { signedBytes, signedCount } from '../diff/words';
import { button, facts, h, note, section, sourceLink } from '../graph/dom';
import { formatBytes, formatCount, oneLine, shorten } from '../graph/format';
import type { MemoryColumns } from '../memory/series';
import type { Change } from './groups';
import { BY, ownCalls, type By } from './naming';
import type { Pair } from './pair';
import { nameOf } from './row';
import type { Side } from './side';
import { GROUPINGS, shareOf } from './words';

const MOST = 6;

/** Fills the inspector. */
export function showDetails(el: HTMLElement, pair: Pair, clear: () => void): void {
  const { chosen } = pair;
  el.replaceChildren(...(chosen ? ofGroup(pair, chosen, clear) : ofBoth(pair)));
}

function ofGroup(pair: Pair, row: Change, clear: () => void): Node[] {
  const { one } = GROUPINGS[pair.by];
  const head = h(
    'section',
    { class: 'wv-sec' },
    h('span', { class: 'wv-note' }, `${GROUPINGS[pair.by].text}, lit in both timelines`),
    h('p', { class: 'wv-name' }, oneLine(row.what.slice(0, 2000))),
    button('Clear', clear, { title: `Show all again: no ${one} alone` }, 'Esc'),
  );
  const found: Node[] = [head, figures(row), ...sources(pair)];
  for (const by of BY)
    if (by !== pair.by) {
      const within = pair.within(by);
      if (within.length > 1) found.push(parts(by, within));
    }
  return found;
}

function figures(row: Change): HTMLElement {
  const { before, after, change, blocksBefore, blocksAfter } = row;
  const share = shareOf(row);
  return section(
    'At the peaks',
    share,
    numbers([
      ['Bytes', formatBytes(before), formatBytes(after), signedBytes(change)],
      [
        'Blocks',
        formatCount(blocksBefore),
        formatCount(blocksAfter),
        signedCount(blocksAfter - blocksBefore),
      ],
    ]),
  );
}

/** The lines themselves, which a click opens; B's where it has them, which ran later. */
function sources(pair: Pair): Node[] {
  for (const side of [pair.b, pair.a]) {
    const own = side.naming(pair.by);
    const block = side.blocks.find((one) => own(one) === pair.selected);
    if (block !== undefined) return links(pair.by, side.record, block);
  }
  return [];
}

function links(by: By, record: MemoryColumns, block: number): Node[] {
  const line = record.sources[record.block_source[block] ?? -1];
  const lines = by === 'stack' ? ownCalls(record, block) : by === 'line' && line ? [line] : [];
  if (lines.length === 0) return [];
  const list = h('ol', { class: 'wv-lines' });
  for (const one of lines) {
    const code = h('span', { class: 'wv-mono' }, shorten(one.text, 120));
    list.append(h('li', {}, sourceLink(one), ' ', shorten(one.function, 60), code));
  }
  return [section('Code', by === 'stack' ? 'outermost first' : '', list)];
}

function parts(by: By, rows: readonly Change[]): HTMLElement {
  const { text, one, many } = GROUPINGS[by];
  const body = h('tbody', {});
  for (const row of rows.slice(0, MOST))
    body.append(
      h(
        'tr',
        {},
        h('td', { title: shorten(row.what, 1000) }, nameOf(by, row.what)),
        h('td', {}, formatBytes(row.before)),
        h('td', {}, formatBytes(row.after)),
        h('td', { class: 'wv-change' }, signedBytes(row.change)),
      ),
    );
  const more = rows.length - MOST;
  const rest = more > 0 ? note(`and ${formatCount(more)} more ${more === 1 ? one : many}`) : null;
  const table = h('table', { 'aria-label': `By ${one}` }, headOf(text), body);
  return section(`By ${one}`, '', table, ...(rest ? [rest] : []));
}

function ofBoth({ a, b }: Pair): Node[] {
  const found: Node[] = [section('A to B', '', numbers(totals(a, b))), ...cautions(a, b)];
  const alike = a.record.basis === b.record.basis;
  found.push(ofSide('A', a, !alike), ofSide('B', b, !alike));
  if (alike) found.push(section('Both', '', note(shorten(a.record.basis, 600))));
  return found;
}

function ofSide(letter: string, { record }: Side, basis: boolean): HTMLElement {
  const rows: [string, string][] = [['Device', shorten(record.device, 40)]];
  const { torch_version: torch, batch_size: batch, settings } = record;
  if (torch) rows.push(['torch', shorten(torch, 24)]);
  if (batch >= 0) rows.push(['Batch', formatCount(batch)]);
  if (settings) rows.push(['Settings', shorten(settings, 80)]);
  const text = basis ? [note(shorten(record.basis, 600))] : [];
  return section(letter, shorten(record.title, 40), facts(rows), ...text);
}

type Row = readonly [string, string, string, string];

function totals(a: Side, b: Side): Row[] {
  const bytes = (name: string, of: (side: Side) => number): Row => [
    name,
    formatBytes(of(a)),
    formatBytes(of(b)),
    signedBytes(of(b) - of(a)),
  ];
  const counts = (name: string, of: (side: Side) => number): Row => [
    name,
    formatCount(of(a)),
    formatCount(of(b)),
    signedCount(of(b) - of(a)),
  ];
  const rows = [bytes('Peak', ({ record }) => record.peak_bytes)];
  if ([a, b].every(({ record }) => record.reserved_bytes >= 0))
    rows.push(bytes('Reserved', ({ record }) => record.reserved_bytes));
  rows.push(
    counts('Blocks at peak', ({ blocks }) => blocks.length),
    counts('Events', ({ record }) => record.event_time_us.length),
  );
  return rows;
}

/** What makes A and B less alike than their numbers look. */
function cautions({ record: a }: Side, { record: b }: Side): Node[] {
  const said: string[] = [];
  if (a.device !== b.device) said.push(`A is on ${a.device}, B on ${b.device}.`);
  if (a.basis !== b.basis) said.push('They were not measured in the same way; see below.');
  if (a.is_predicted !== b.is_predicted)
    said.push(`${a.is_predicted ? 'A' : 'B'} is predicted, the other one was recorded.`);
  if (a.batch_size >= 0 && b.batch_size >= 0 && a.batch_size !== b.batch_size)
    said.push(
      `The batch was ${formatCount(a.batch_size)} in A and ${formatCount(b.batch_size)} in B.`,
    );
  return said.length > 0
    ? [section('Mind', '', ...said.map((text) => note(shorten(text, 300))))]
    : [];
}

function headOf(first: string): HTMLElement {
  const heads = [first, 'A', 'B', 'B − A'].map((text) => h('th', { scope: 'col' }, text));
  return h('thead', {}, h('tr', {}, ...heads));
}

function numbers(rows: readonly Row[]): HTMLElement {
  const body = h('tbody', {});
  for (const [name, before, after, change] of rows)
    body.append(
      h(
        'tr',
        {},
        h('td', {}, name),
        h('td', {}, before),
        h('td', {}, after),
        h('td', { class: 'wv-change' }, change),
      ),
    );
  return h('table', { class: 'wv-numbers' }, headOf(''), body);
}
