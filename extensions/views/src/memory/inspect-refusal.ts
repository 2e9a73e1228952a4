/** The inspector at a refused request: what was requested, what was in the way, what helps. */
import { aside, facts, h, link, renew, section, sourceLabel } from '../graph/dom';
import { formatBytes, formatCount, oneLine, plural, shorten } from '../graph/format';
import { titleOf } from './blocks';
import { predictionPart } from './inspector';
import type { Model } from './model';
import { lanesOf, refusalBars } from './refusal-bars';
import { roomOf, type Room } from './refusal-room';
import { obstaclesOf, refusedIn } from './refusals';
import { remediesTable } from './remedies';
import { timeAt, type MemoryColumns } from './series';
import { swatch } from './tables';

/** Fills the inspector for a refused request; a click on a block chooses it. */
export function inspectRefusal(
  element: HTMLElement,
  model: Model,
  row: number,
  onSelect: (block: number) => void,
): void {
  const { record } = model;
  const event = record.oom_event[row] ?? 0;
  const phase = oneLine(refusedIn(record, row));
  const blocks = obstaclesOf(record, row);
  const room = model.hasSegments ? roomOf(record, model.moment(event + 1), row, blocks) : null;
  renew(element, [
    h(
      'section',
      { class: 'wv-sec' },
      h('h2', { class: 'wv-oom' }, '✕ Out of memory'),
      phase ? h('p', {}, `In ${phase}.`) : '',
    ),
    requestPart(model, row, room),
    obstaclesPart(record, blocks, room, onSelect),
    ...remediesPart(record),
    ...predictionPart(record),
  ]);
}

function requestPart(
  { record, hasSegments, series }: Model,
  row: number,
  room: Room | null,
): HTMLElement {
  const event = record.oom_event[row] ?? 0;
  const [requested, device] = [record.oom_bytes[row] ?? 0, record.oom_free[row] ?? -1];
  const largest = hasSegments ? (record.oom_largest[row] ?? -1) : null;
  const rows: [string, string][] = [['Exactly', `${formatCount(requested)} B`]];
  if (hasSegments) {
    const held = (series.reserved?.[event + 1] ?? 0) - (series.total[event + 1] ?? 0);
    rows.push(['Free in pieces', formatBytes(held)]);
  }
  if (record.card_bytes >= 0) rows.push(['Usable on the GPU', formatBytes(record.card_bytes)]);
  rows.push(['When', `${timeAt(record, event + 1).toFixed(1)} ms, event ${formatCount(event)}`]);
  const bars = refusalBars(requested, lanesOf(requested, device, largest, room));
  return section('The request', '', bars, facts(rows));
}

function remediesPart({ remedies }: MemoryColumns): HTMLElement[] {
  if (remedies.length === 0) return [];
  const fitting = remedies.filter(({ fits }) => fits).length;
  const note = `${formatCount(fitting)} of ${formatCount(remedies.length)} tried would do`;
  return [section('What helps', note, remediesTable(remedies))];
}

function obstaclesPart(
  record: MemoryColumns,
  blocks: readonly number[],
  room: Room | null,
  onSelect: (block: number) => void,
): HTMLElement {
  if (blocks.length === 0) {
    const none = 'No segment is as long as the request, or the layout is not known.';
    return section('In the way', '', h('p', { class: 'wv-note' }, none));
  }
  const sum = blocks.reduce((all, block) => all + (record.block_bytes[block] ?? 0), 0);
  const many =
    blocks.length === 1 ? 'this block was' : `these ${plural(blocks.length, 'block')} were`;
  const how = room?.emptied
    ? 'their segments would be returned to the driver'
    : 'the cheapest neighbours to free';
  const said = h('p', {}, `Would have been served if ${many} not there: ${how}.`);
  const body = h('tbody', {});
  const caption = h('caption', { class: 'wv-sr' }, 'Blocks in the way');
  const columns = h('colgroup', {}, h('col'), h('col', { width: 70 }));
  const table = h('table', { class: 'wv-obstacles' }, caption, columns, body);
  const show = (most: number): void =>
    body.replaceChildren(
      ...blocks.slice(0, most).map((block) => obstacleRow(record, block, onSelect)),
    );
  show(FIRST);
  const part = section('In the way', formatBytes(sum), said, table);
  const all = link(`Show all ${formatCount(blocks.length)}, the largest first`, () => {
    show(MOST);
    all.remove();
    body.querySelector('button')?.focus();
  });
  if (blocks.length > FIRST) part.append(all);
  return part;
}

/** Rows that are shown at first, and at most. */
const FIRST = 6;
const MOST = 500;

function obstacleRow(
  record: MemoryColumns,
  block: number,
  onSelect: (block: number) => void,
): HTMLElement {
  const source = record.sources[record.block_source[block] ?? -1];
  const name = titleOf(record, block);
  const choose = link(shorten(name, 34), () => onSelect(block), `Choose ${shorten(name, 200)}`);
  const category = swatch(record.block_category[block] ?? 6);
  category.lastChild?.remove(); // its colour alone: the name says the rest
  const where = aside(source ? ` ${shorten(sourceLabel(source), 22)}` : '');
  const size = formatBytes(record.block_bytes[block] ?? 0);
  return h('tr', {}, h('td', {}, category, ' ', choose, where), h('td', {}, size));
}
