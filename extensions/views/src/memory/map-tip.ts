/** What is under the pointer on the map, in words. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, plural } from '../graph/format';
import { titleOf as titleOfBlock } from './blocks';
import type { MapLayout } from './map-layout';
import { isReleasable, type Moment, type Segment } from './moment';
import { categoryLabel, timeAt, type MemoryColumns } from './series';

/** A block, or free memory where it is null. */
export function describe(record: MemoryColumns, segment: Segment, block: number | null): Node[] {
  const free = segment.bytes - segment.used;
  const where = `in a segment of ${formatBytes(segment.bytes)}, ${plural(segment.blocks.length, 'block')}, ${formatBytes(free)} free`;
  if (block === null) {
    const kept = segment.pool === 0 ? 'pinned by live blocks' : 'kept by its private pool';
    const kind = isReleasable(segment) ? 'releasable' : kept;
    return [h('b', {}, `Free, ${kind}`), h('div', {}, where)];
  }
  const bytes = record.block_bytes[block] ?? 0;
  const size = `${formatBytes(bytes)} · ${formatCount(bytes)} B · ${categoryLabel(record.block_category[block] ?? 6)}`;
  return [
    h('b', {}, titleOfBlock(record, block).slice(0, 80)),
    h('div', {}, size),
    h('div', {}, where),
  ];
}

/** Where on an element the pointer is. */
export function pointIn(canvas: HTMLCanvasElement, event: MouseEvent): [number, number] {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** How many segments there are when, and to which scale they are drawn. */
export function titleOf(record: MemoryColumns, moment: Moment, layout: MapLayout): string {
  const count = plural(moment.segments.length, 'segment');
  const held = `${formatBytes(moment.split.reserved)} reserved`;
  const scale = formatBytes(layout.bytesPerPixel).replace('.0', '');
  const small =
    layout.magnification > 1.5 ? `; small pool × ${Math.round(layout.magnification)}` : '';
  const time = `${timeAt(record, moment.position).toFixed(1)} ms`;
  return `${count}, ${held} at ${time}. Large pool: 1 px = ${scale}${small}.`;
}
