/** The allocator's segments at the end of the recording: one strip each, blocks to scale. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, plural } from '../graph/format';
import { fitText } from '../graph/text';
import type { Palette } from '../graph/theme';
import { CATEGORIES, type MemoryColumns } from './series';
import { MOST_STRIPS, placeStrips, STRIP, STRIPS_LEFT, type Strips } from './strips';

const ALLOCATED = 0;
const PENDING = 1;

export interface SegmentMap {
  element: HTMLElement;
  draw: (palette: Palette, width: number) => void;
}

/** Makes the map; `onPick` gets the address of the block that was clicked. */
export function segmentMap(record: MemoryColumns, onPick: (address: number) => void): SegmentMap {
  const count = record.segment_bytes.length;
  const canvas = h('canvas', {
    role: 'img',
    'aria-label': `${plural(count, 'segment')} at the end of the recording; the table below has the blocks`,
  });
  const scroll = h('div', { class: 'wv-strips' }, canvas);
  const element = h('section', { class: 'wv-segments' }, heading(record), scroll);
  let strips: Strips = { strips: [], groups: [], height: 0 };

  const draw = (palette: Palette, width: number): void => {
    const ratio = window.devicePixelRatio || 1;
    strips = placeStrips(record, width);
    canvas.width = width * ratio;
    canvas.height = strips.height * ratio;
    canvas.style.cssText = `width:${width}px;height:${strips.height}px`;
    const context = canvas.getContext('2d');
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paintLabels(context, palette, strips);
    paintStrips(context, palette, record, strips);
  };
  canvas.addEventListener('click', (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const strip = strips.strips.find(
      (one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + STRIP,
    );
    if (!strip) return;
    const start = blockAt(record, strip.segment, (x - strip.x) / strip.scale);
    if (start !== null) onPick((record.segment_address[strip.segment] ?? 0) + start);
  });
  return { element, draw };
}

function heading(record: MemoryColumns): HTMLElement {
  const count = record.segment_bytes.length;
  const total = Array.from(record.segment_bytes).reduce((sum, bytes) => sum + bytes, 0);
  const more = count > MOST_STRIPS ? `; the ${formatCount(MOST_STRIPS)} largest are drawn` : '';
  const note = `${plural(count, 'segment')}, ${formatBytes(total)} reserved at the end${more}`;
  const states = [
    ['allocated, by category', 'a'],
    ['pending free', 'p'],
    ['free', 'f'],
  ] as const;
  return h(
    'div',
    { class: 'wv-part' },
    h('b', {}, 'Segments'),
    h('span', {}, note),
    ...states.map(([name, kind]) => h('span', { class: `wv-state wv-state-${kind}` }, name)),
  );
}

/** Offset of the block that covers an offset of a segment. */
function blockAt(record: MemoryColumns, segment: number, offset: number): number | null {
  for (let block = 0; block < record.segment_block_segment.length; block += 1) {
    const start = record.segment_block_offset[block] ?? 0;
    const end = start + (record.segment_block_bytes[block] ?? 0);
    if (record.segment_block_segment[block] === segment && offset >= start && offset < end)
      return start;
  }
  return null;
}

function paintLabels(context: CanvasRenderingContext2D, palette: Palette, strips: Strips): void {
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  for (const { bytes, small, count, stretch, y } of strips.groups) {
    const middle = y + STRIP / 2;
    context.font = `600 11px ${palette.font}`;
    context.fillStyle = palette.ink;
    const size = formatBytes(bytes);
    context.fillText(size, 16, middle);
    const used = 16 + context.measureText(size).width;
    context.font = `11px ${palette.font}`;
    context.fillStyle = palette.ink2;
    const wide = stretch > 1 ? `, ${stretch.toFixed(0)}× wide` : '';
    const note = ` × ${formatCount(count)}${small ? ' small' : ''}${wide}`;
    context.fillText(fitText(context, note, STRIPS_LEFT - used - 6), used + 3, middle);
  }
}

function paintStrips(
  context: CanvasRenderingContext2D,
  palette: Palette,
  record: MemoryColumns,
  { strips }: Strips,
): void {
  const free = hatch(context, palette, false);
  const pending = hatch(context, palette, true);
  const bySegment = new Map(strips.map((strip) => [strip.segment, strip]));
  context.fillStyle = free;
  for (const { x, y, width } of strips) context.fillRect(x, y, width, STRIP);
  for (let block = 0; block < record.segment_block_segment.length; block += 1) {
    const strip = bySegment.get(record.segment_block_segment[block] ?? -1);
    const state = record.segment_block_state[block];
    if (!strip || (state !== ALLOCATED && state !== PENDING)) continue;
    const name = CATEGORIES[record.segment_block_category[block] ?? 6] ?? 'unknown';
    const x = strip.x + (record.segment_block_offset[block] ?? 0) * strip.scale;
    const width = Math.max(0.6, (record.segment_block_bytes[block] ?? 0) * strip.scale);
    context.fillStyle = palette.categories[name]?.fill ?? palette.ink2;
    context.fillRect(x, strip.y, width > 2 ? width - 0.5 : width, STRIP);
    if (state !== PENDING) continue;
    context.fillStyle = pending;
    context.fillRect(x, strip.y, width, STRIP);
  }
  context.strokeStyle = palette.stroke2;
  context.lineWidth = 1;
  for (const { x, y, width } of strips)
    if (width > 3) context.strokeRect(x + 0.5, y + 0.5, width - 1, STRIP - 1);
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
