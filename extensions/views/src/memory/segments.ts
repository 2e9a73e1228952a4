/** The allocator's segments at the end of the recording: one strip each, blocks to scale. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, plural } from '../graph/format';
import type { Palette } from '../graph/theme';
import { CATEGORIES, type MemoryColumns } from './series';

const STRIP = 12;
const PITCH = 16;
const LABEL = 92;
/** Larger ones first; a strip for each of thousands of segments would tell nothing more. */
const MOST = 400;
const ALLOCATED = 0;
const PENDING = 1;

export interface SegmentMap {
  element: HTMLElement;
  draw: (palette: Palette, width: number) => void;
}

/** Makes the map; `onPick` gets the address of the block that was clicked. */
export function segmentMap(record: MemoryColumns, onPick: (address: number) => void): SegmentMap {
  const count = record.segment_bytes.length;
  const order = Array.from({ length: count }, (_, row) => row)
    .sort((a, b) => (record.segment_bytes[b] ?? 0) - (record.segment_bytes[a] ?? 0) || a - b)
    .slice(0, MOST);
  const rowOf = new Map(order.map((segment, row) => [segment, row]));
  const largest = record.segment_bytes[order[0] ?? 0] ?? 1;
  const canvas = h('canvas', {
    role: 'img',
    'aria-label': `${plural(count, 'segment')} at the end of the recording; the table (T) has the numbers`,
  });
  const total = Array.from(record.segment_bytes).reduce((sum, bytes) => sum + bytes, 0);
  const note = `${plural(count, 'segment')}, ${formatBytes(total)} reserved at the end`;
  const more = count > MOST ? `; the ${formatCount(MOST)} largest are drawn` : '';
  const heading = h(
    'div',
    { class: 'wb-part' },
    h('b', {}, 'Segments'),
    h('span', {}, note + more),
  );
  for (const [name, kind] of [
    ['allocated, by category', 'a'],
    ['pending free', 'p'],
    ['free', 'f'],
  ] as const)
    heading.append(h('span', { class: `wb-state wb-state-${kind}` }, name));
  const scroll = h('div', { class: 'wb-strips' }, canvas);
  const element = h('section', { class: 'wb-segments' }, heading, scroll);
  let scale = 1;

  const draw = (palette: Palette, width: number): void => {
    const ratio = window.devicePixelRatio || 1;
    const height = order.length * PITCH + 4;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.cssText = `width:${width}px;height:${height}px`;
    const context = canvas.getContext('2d');
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = 'middle';
    context.font = `11px ${palette.font}`;
    scale = (width - LABEL - 14) / largest;
    const free = hatch(context, palette, false);
    const pending = hatch(context, palette, true);
    order.forEach((segment, row) => {
      const bytes = record.segment_bytes[segment] ?? 0;
      context.fillStyle = palette.ink2;
      context.textAlign = 'right';
      const pool = record.segment_pool[segment] === 0 ? 'small ' : '';
      context.fillText(pool + formatBytes(bytes), LABEL - 8, row * PITCH + 2 + STRIP / 2);
      context.fillStyle = free;
      context.fillRect(LABEL, row * PITCH + 2, bytes * scale, STRIP);
    });
    for (let block = 0; block < record.segment_block_segment.length; block += 1) {
      const row = rowOf.get(record.segment_block_segment[block] ?? -1);
      const state = record.segment_block_state[block];
      if (row === undefined || (state !== ALLOCATED && state !== PENDING)) continue;
      const name = CATEGORIES[record.segment_block_category[block] ?? 6] ?? 'unknown';
      const x = LABEL + (record.segment_block_offset[block] ?? 0) * scale;
      const width = Math.max(0.6, (record.segment_block_bytes[block] ?? 0) * scale);
      context.fillStyle = palette.categories[name]?.fill ?? palette.ink2;
      context.fillRect(x, row * PITCH + 2, width > 2 ? width - 0.5 : width, STRIP);
      if (state !== PENDING) continue;
      context.fillStyle = pending;
      context.fillRect(x, row * PITCH + 2, width, STRIP);
    }
    context.strokeStyle = palette.stroke2;
    context.lineWidth = 1;
    order.forEach((segment, row) => {
      const width = (record.segment_bytes[segment] ?? 0) * scale;
      context.strokeRect(LABEL + 0.5, row * PITCH + 2.5, Math.max(1, width - 1), STRIP - 1);
    });
  };
  canvas.addEventListener('click', (event) => {
    const box = canvas.getBoundingClientRect();
    const segment = order[Math.floor((event.clientY - box.top) / PITCH)];
    const offset = (event.clientX - box.left - LABEL) / scale;
    if (segment === undefined || offset < 0) return;
    for (let block = 0; block < record.segment_block_segment.length; block += 1) {
      const start = record.segment_block_offset[block] ?? 0;
      if (record.segment_block_segment[block] !== segment || offset < start) continue;
      if (offset < start + (record.segment_block_bytes[block] ?? 0))
        onPick((record.segment_address[segment] ?? 0) + start);
    }
  });
  return { element, draw };
}

/** Diagonal lines for free bytes, horizontal stripes for what waits for another stream. */
function hatch(
  context: CanvasRenderingContext2D,
  palette: Palette,
  stripes: boolean,
): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const inner = tile.getContext('2d');
  if (!inner) return palette.hatchBack;
  if (!stripes) {
    inner.fillStyle = palette.hatchBack;
    inner.fillRect(0, 0, 6, 6);
  }
  inner.strokeStyle = stripes ? palette.canvas : palette.hatch;
  inner.lineWidth = stripes ? 2 : 1;
  inner.beginPath();
  if (stripes) {
    inner.moveTo(0, 3);
    inner.lineTo(6, 3);
  } else
    for (const shift of [-6, 0, 6]) {
      inner.moveTo(shift, 6);
      inner.lineTo(shift + 6, 0);
    }
  inner.stroke();
  return context.createPattern(tile, 'repeat') ?? palette.hatchBack;
}
