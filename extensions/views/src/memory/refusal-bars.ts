/** A refused request beside what there was, as bars of one scale. */
import { h } from '../graph/dom';
import { formatBytes, formatCount } from '../graph/format';
import type { Part, Room } from './refusal-room';
import { CATEGORIES } from './series';

/** What is so many times as large as the request is drawn no longer. */
const FAR = 1.5;

export interface Lane {
  label: string;
  /** -1: not known. */
  bytes: number;
  /** What the bar is made of; the request itself has none. */
  parts?: readonly Part[];
  said?: string;
}

/** The lanes of a request: what was requested, what was free, and what would have served it. */
export function lanesOf(
  requested: number,
  device: number,
  largest: number | null,
  room: Room | null,
): Lane[] {
  const free = (bytes: number): Part[] => [{ category: -1, bytes }];
  const lanes: Lane[] = [
    { label: 'Requested', bytes: requested },
    { label: 'Free on the device', bytes: device, parts: free(device) },
  ];
  if (largest !== null)
    lanes.push({ label: 'Largest free block', bytes: largest, parts: free(largest) });
  if (room) {
    const said = room.exact ? {} : { said: 'enough' };
    lanes.push({ label: 'Without the blocks', bytes: room.bytes, parts: room.parts, ...said });
  }
  return lanes;
}

export function refusalBars(requested: number, lanes: readonly Lane[]): HTMLElement {
  const most = Math.min(FAR * requested, Math.max(1, ...lanes.map(({ bytes }) => bytes)));
  const body = h('tbody', {});
  for (const { label, bytes, parts, said } of lanes) {
    const exact = bytes < 0 ? null : `${formatCount(bytes)} B`;
    const value = said ?? (bytes < 0 ? 'not known' : formatBytes(bytes));
    const bar = h('td', { 'aria-hidden': 'true' }, barOf(parts ?? null, bytes, requested, most));
    const head = h('th', { scope: 'row' }, label);
    body.append(h('tr', {}, head, bar, h('td', { title: said ? null : exact }, value)));
  }
  const caption = h('caption', { class: 'wv-sr' }, 'The request and what was free');
  return h('table', { class: 'wv-lanes' }, caption, body);
}

function barOf(
  parts: readonly Part[] | null,
  bytes: number,
  requested: number,
  most: number,
): HTMLElement {
  const bar = h('div', { class: 'wv-lane' });
  const percent = (part: number): string => `${Math.min(100, (100 * part) / most)}%`;
  let left = 0;
  for (const part of parts ?? [{ category: -2, bytes }]) {
    const name = CATEGORIES[part.category];
    const kind = part.category === -2 ? 'wv-requested' : name ? null : 'wv-hole';
    const piece = h('i', { class: kind });
    if (name) piece.style.background = `var(--wb-c-${name})`;
    piece.style.left = percent(left);
    piece.style.width = percent(Math.min(part.bytes, Math.max(0, most - left)));
    left += part.bytes;
    bar.append(piece);
  }
  const mark = h('b', {});
  mark.style.left = percent(requested);
  bar.append(mark);
  return bar;
}
