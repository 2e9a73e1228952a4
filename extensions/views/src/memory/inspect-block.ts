/** Everything known about the chosen block: itself, its life, its line and its segment. */
import { aside, button, facts, h, renew, section, sourceSection, sourceLabel } from '../graph/dom';
import { formatBytes, formatCount, oneLine, plural, shorten } from '../graph/format';
import { hasFlame } from './callers';
import { addressOf, moduleOf, opOf, titleOf } from './blocks';
import type { Model } from './model';
import { find, holesOf, isPending, partsOf, type Segment } from './moment';
import { isLive, phaseAt, timeAt, type MemoryColumns } from './series';
import { lifetime, swatch } from './tables';
import type { MemoryView } from './view';

/** Fills the inspector for a block. */
export function inspectBlock(
  element: HTMLElement,
  model: Model,
  block: number,
  view: MemoryView,
): void {
  const { record } = model;
  const position = model.view.scrubber;
  const there = isLive(record, block, position);
  const address = record.block_address[block] ?? -1;
  const segment = model.hasSegments && there ? find(model.moment().segments, address) : null;
  const parts: Node[] = [
    heading(record, block, position, segment),
    blockPart(model, block, segment),
  ];
  parts.push(lifePart(record, block, position, model.view.axis === 'time'));
  const source = record.sources[record.block_source[block] ?? -1];
  if (source) parts.push(sourceSection(source));
  const made: [string, string][] = [];
  if (opOf(record, block)) made.push(['Operation', oneLine(opOf(record, block).slice(0, 300))]);
  if (moduleOf(record, block))
    made.push(['Module', oneLine(moduleOf(record, block).slice(0, 300))]);
  if (made.length > 0) parts.push(section('Allocated by', '', facts(made)));
  if (segment) parts.push(segmentPart(record, block, segment));
  parts.push(actions(model, block, view, there));
  renew(element, parts);
}

function heading(
  record: MemoryColumns,
  block: number,
  position: number,
  segment: Segment | null,
): HTMLElement {
  const title = titleOf(record, block);
  const path = segment
    ? `${segment.small ? 'Small' : 'Large'} pool › ${formatBytes(segment.bytes)} segment › block ${formatCount(segment.blocks.indexOf(block) + 1)} of ${formatCount(segment.blocks.length)}`
    : shorten(moduleOf(record, block), 160);
  const live = isLive(record, block, position);
  const pending = live && isPending(record, block, position);
  const state = pending ? 'pending free' : live ? 'allocated' : 'not there at the scrubber';
  const chips = h(
    'div',
    { class: 'wv-chips' },
    h('span', { class: 'wv-chip' }, swatch(record.block_category[block] ?? 6)),
  );
  chips.append(h('span', { class: 'wv-chip' }, state));
  return h(
    'section',
    { class: 'wv-sec' },
    h('div', { class: 'wv-note', style: 'overflow-wrap:anywhere' }, path),
    h('h2', { title: shorten(title, 1000) }, shorten(title, 120)),
    chips,
  );
}

/** `25.0 MiB` with the exact bytes beside it. */
function exactly(bytes: number): string {
  return bytes < 1024
    ? `${formatCount(bytes)} B`
    : `${formatBytes(bytes)} · ${formatCount(bytes)} B`;
}

function blockPart({ record, rules }: Model, block: number, segment: Segment | null): HTMLElement {
  const { rounding, slack } = partsOf(record, block, rules);
  const address = record.block_address[block] ?? -1;
  const rows: [string, string][] = [
    ['Address', addressOf(record, block) || `not recorded on ${record.device}`],
    ['Size', exactly(record.block_bytes[block] ?? 0)],
  ];
  if (record.segment_bytes.length > 0) {
    rows.push(['Requested', exactly(record.block_requested[block] ?? 0)]);
    rows.push(['Rounding', exactly(rounding)], ['Slack', exactly(slack)]);
    if (segment) rows.push(['Offset', `${formatBytes(address - segment.address)} in its segment`]);
    const stream = record.block_stream[block] ?? 0;
    rows.push(['Stream', stream === 0 ? '0, default' : `0x${stream.toString(16)}`]);
  }
  return section('Block', '', facts(rows));
}

function lifePart(
  record: MemoryColumns,
  block: number,
  position: number,
  clock: boolean,
): HTMLElement {
  const start = record.block_start[block] ?? -1;
  const end = record.block_end[block] ?? -1;
  const requested = record.block_pending[block] ?? -1;
  const moment = (event: number): string => {
    const phase = phaseAt(record, event);
    const time = `${timeAt(record, event + 1).toFixed(1)} ms, event ${formatCount(event)}`;
    return phase ? `${time} · ${oneLine(phase)}` : time;
  };
  const rows: [string, string][] = [
    ['Allocated', start < 0 ? 'before recording began' : moment(start)],
  ];
  if (start >= 0 && isLive(record, block, position)) {
    const age = timeAt(record, position) - timeAt(record, start + 1);
    rows.push(['Age', `${age.toFixed(1)} ms at the scrubber`]);
  }
  if (requested >= 0) rows.push(['Free requested', moment(requested)]);
  rows.push(['Freed', end < 0 ? 'not in this recording' : moment(end)]);
  if (start >= 0 && end >= 0) {
    const lived = timeAt(record, end + 1) - timeAt(record, start + 1);
    rows.push(['Lived', `${formatCount(end - start)} events · ${lived.toFixed(1)} ms`]);
  }
  return section('Lifetime', '', facts(rows), lifetime(record, block, position, clock));
}

/** What its neighbours are, and what the free memory between them means. */
function segmentPart(record: MemoryColumns, block: number, segment: Segment): HTMLElement {
  const holes = holesOf(record, segment).map(([from, to]) => to - from);
  const free = holes.reduce((sum, bytes) => sum + bytes, 0);
  const largest = Math.max(0, ...holes);
  const note = `${plural(segment.blocks.length, 'block')}, ${plural(holes.length, 'hole')}`;
  const said = free === 0 ? 'It is full.' : pinned(holes, free, largest);
  const rows = neighbours(record, block, segment);
  return section('Its segment', note, h('p', {}, said), facts(rows));
}

function pinned(holes: readonly number[], free: number, largest: number): string {
  if (holes.length === 1)
    return `A hole of ${formatBytes(free)} stays pinned: only requests up to that can use it.`;
  const three = [...holes]
    .sort((a, b) => b - a)
    .slice(0, 3)
    .map(formatBytes);
  const list =
    holes.length > 3
      ? `${formatCount(holes.length)} holes, the largest ${three[0]},`
      : `Holes of ${three.slice(0, -1).join(', ')} and ${three[three.length - 1]}`;
  return `${list} stay pinned: ${formatBytes(free)} that only requests up to ${formatBytes(largest)} can use.`;
}

function neighbours(record: MemoryColumns, block: number, segment: Segment): [string, string][] {
  const at = segment.blocks.indexOf(block);
  const start = (one: number): number => record.block_address[one] ?? 0;
  const end = (one: number): number => start(one) + (record.block_bytes[one] ?? 0);
  const name = (one: number): string =>
    `${shorten(titleOf(record, one), 40)}, ${formatBytes(record.block_bytes[one] ?? 0)}`;
  const before = segment.blocks[at - 1];
  const after = segment.blocks[at + 1];
  const left = start(block) - (before === undefined ? segment.address : end(before));
  const right = (after === undefined ? segment.address + segment.bytes : start(after)) - end(block);
  const edge = 'the edge of the segment';
  return [
    [
      'Before',
      left > 0 ? `free, ${formatBytes(left)}` : before === undefined ? edge : name(before),
    ],
    ['After', right > 0 ? `free, ${formatBytes(right)}` : after === undefined ? edge : name(after)],
  ];
}

function actions(model: Model, block: number, view: MemoryView, there: boolean): HTMLElement {
  const { record } = model;
  const start = record.block_start[block] ?? -1;
  const end = record.block_end[block] ?? -1;
  const list = h('div', { class: 'wv-actions' });
  const go = (text: string, act: () => void, key = ''): void => {
    list.append(button(text, act, {}, key));
  };
  if (model.hasSegments && there && view.face !== 'map')
    go('Show it on the map', () => view.show('map'), 'M');
  if (view.face !== 'holders') go('Show it among the holders', () => view.show('holders'), 'H');
  if (view.face !== 'flame' && hasFlame(record))
    go('Show in the flame graph', () => view.show('flame'), 'S');
  const [module, openModule] = [moduleOf(record, block), view.openModule];
  if (module && openModule) go('Show its module in the graph', () => openModule(module));
  if (start >= 0) go('Go to its allocation', () => view.scrub(start + 1), '[');
  if (end >= 0) go('Go to just before it is freed', () => view.scrub(end), ']');
  const source = record.sources[record.block_source[block] ?? -1];
  if (source) {
    const place = sourceLabel(source).split(' ').pop() ?? '';
    const query = source.cell === null ? place : `cell ${source.cell}, line ${source.line}`;
    list.append(button('All blocks of this line', () => view.bar.look(query)));
  } else if (module) list.append(button('All blocks of this module', () => view.bar.look(module)));
  return h('section', { class: 'wv-sec' }, list, aside());
}
