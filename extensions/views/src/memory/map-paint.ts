/** Draws the segment map, and the one segment that the lens shows. */
import { formatBytes, formatCount, plural } from '../graph/format';
import { fitText } from '../graph/text';
import type { Palette } from '../graph/theme';
import type { Group, Section } from './map-groups';
import { MAP_LEFT, type MapLayout, type Piece } from './map-layout';
import { isPending, isReleasable, partsOf, type Segment } from './moment';
import type { Patterns } from './patterns';
import type { Rules } from './rules';
import { CATEGORIES, categoryLabel, type MemoryColumns } from './series';

export interface Brush {
  context: CanvasRenderingContext2D;
  palette: Palette;
  patterns: Patterns;
  record: MemoryColumns;
  position: number;
  /** The allocator's. */
  rules: Rules;
  /** Blocks that pass the filter; null when all do. */
  fits: ((block: number) => boolean) | null;
  /** Blocks that stand in the way of a refused request. */
  obstacles: readonly number[];
}

const DIM = 0.22;
const LABEL_X = 16;

export function paintMap(brush: Brush, layout: MapLayout): void {
  for (const section of layout.sections) {
    paintSection(brush, section, layout);
    for (const group of section.groups) {
      paintLabel(brush, group, section);
      if (group.bar) paintBar(brush, group, group.bar, layout, section.pool !== 0);
    }
  }
  for (const piece of layout.pieces) paintPiece(brush, piece, layout.strip);
  for (const { text, x, y } of layout.pills) {
    const free = text.pool === 0 ? 'releasable' : 'kept by its pool';
    const kind = text.fullness === 'full' ? categoryLabel(text.category) : free;
    paintPill(brush, `${formatCount(text.count)} ${text.fullness}, ${kind}`, x, y);
  }
}

function paintSection({ context, palette }: Brush, section: Section, layout: MapLayout): void {
  if (section.y === null) return;
  const middle = section.y + 8;
  const pool = section.pool === 0 ? '' : `, private pool ${section.pool}`;
  const stream = section.named ? `, ${streamName(section.stream)}${pool}` : '';
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.font = `600 11px ${palette.font}`;
  context.fillStyle = palette.ink;
  const title = `${section.small ? 'Small' : 'Large'} pool${stream}`;
  context.fillText(title, LABEL_X, middle);
  const used = Math.max(MAP_LEFT, LABEL_X + context.measureText(title).width + 10);
  const bytes = section.segments.reduce((sum, segment) => sum + segment.bytes, 0);
  const note = `${plural(section.segments.length, 'segment')}, ${formatBytes(bytes)}`;
  const how = section.small ? '' : ', by segment size; inside a size full, partly free, empty';
  context.font = `11px ${palette.font}`;
  context.fillStyle = palette.ink2;
  const text = fitText(context, note + how, layout.width - used - 20);
  context.fillText(text, used, middle);
  const left = used + context.measureText(text).width + 10;
  context.fillStyle = palette.grid;
  if (layout.width - 18 > left)
    context.fillRect(left, Math.round(middle), layout.width - 18 - left, 1);
}

function paintLabel({ context, palette }: Brush, group: Group, section: Section): void {
  const bytes = group.segments.reduce((sum, segment) => sum + segment.bytes, 0);
  const used = group.segments.reduce((sum, segment) => sum + segment.used, 0);
  const share = `${Math.floor((100 * used) / Math.max(1, bytes))} %`;
  const own = section.y === null;
  const size = group.bytes > 0 ? shortSize(group.bytes) : 'Other sizes';
  const bold = own ? 'Small pool' : size;
  const rest = `${own ? `${size} ` : ''}× ${formatCount(group.segments.length)}`;
  const two = group.height >= 22;
  const middle = group.y + (two ? 6 : Math.min(group.height, 16) / 2);
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.font = `600 11px ${palette.font}`;
  context.fillStyle = palette.ink;
  context.fillText(bold, LABEL_X, middle);
  const wide = context.measureText(bold).width + 5;
  context.font = `11px ${palette.font}`;
  context.fillStyle = palette.ink2;
  const text = two || own ? rest : `${rest}, ${share}`;
  context.fillText(fitText(context, text, MAP_LEFT - LABEL_X - wide - 4), LABEL_X + wide, middle);
  if (two) context.fillText(`${formatBytes(bytes)}, ${share} used`, LABEL_X, middle + 14);
}

/** `stream 0`, or the handle that a stream is known by. */
function streamName(stream: number): string {
  return stream === 0 ? 'stream 0' : `stream 0x${stream.toString(16)}`;
}

function shortSize(bytes: number): string {
  return formatBytes(bytes).replace('.0 ', ' ');
}

/** One bar for a size whose strips are too narrow: full, partly used and empty, by bytes. */
function paintBar(
  brush: Brush,
  group: Group,
  bar: readonly number[],
  layout: MapLayout,
  kept: boolean,
): void {
  const { context, palette, patterns } = brush;
  const total = bar.reduce((sum, bytes) => sum + bytes, 0);
  const room = Math.min(layout.width - MAP_LEFT - 18, Math.max(24, total / layout.bytesPerPixel));
  const fills = [palette.ink2, patterns.pinned, kept ? patterns.pinned : patterns.free];
  let x = MAP_LEFT;
  bar.forEach((bytes, index) => {
    const width = (bytes / Math.max(1, total)) * room;
    context.fillStyle = fills[index] ?? palette.ink2;
    context.fillRect(x, group.y, Math.max(0, width - 1), group.height);
    x += width;
  });
}

function paintPill({ context, palette }: Brush, text: string, x: number, y: number): void {
  context.font = `11px ${palette.font}`;
  const room = context.measureText(text).width + 20;
  context.beginPath();
  context.roundRect(x - room / 2, y - 8, room, 16, 8);
  context.fillStyle = palette.raise;
  context.fill();
  context.strokeStyle = palette.stroke;
  context.lineWidth = 1;
  context.stroke();
  context.fillStyle = palette.ink;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(text, x, y + 0.5);
}

/** A range of a segment with its blocks to scale. */
export function paintPiece(brush: Brush, piece: Piece, height: number): void {
  const { context, palette, patterns } = brush;
  const { segment, x, y, width } = piece;
  context.fillStyle = isReleasable(segment) ? patterns.free : patterns.pinned;
  if (segment.used < segment.bytes) context.fillRect(x, y, width, height);
  paintBlocks(brush, piece, height);
  if (segment.used >= segment.bytes || width < 3) return;
  context.strokeStyle = palette.stroke2;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  context.globalAlpha = 1;
}

function paintBlocks(brush: Brush, piece: Piece, height: number): void {
  const { context, palette, patterns, record } = brush;
  const right = piece.x + piece.width;
  let drawn = piece.x;
  for (const block of piece.segment.blocks) {
    const [from, to] = placeOf(record, piece, block);
    if (to <= piece.x || from >= right) continue;
    const begin = Math.max(piece.x, from);
    const end = Math.min(right, to);
    // What is too narrow to be seen goes into its neighbour.
    if (end - drawn < 0.6) continue;
    const left = Math.max(drawn, begin);
    const wide = Math.max(0.6, end - left);
    if (brush.fits && !brush.fits(block)) {
      context.fillStyle = palette.token('--wb-surface');
      context.fillRect(left, piece.y, wide, height);
      context.globalAlpha = DIM;
    }
    const name = CATEGORIES[record.block_category[block] ?? 6] ?? 'unknown';
    context.fillStyle = palette.categories[name]?.fill ?? palette.ink2;
    context.fillRect(left, piece.y, wide > 4 ? wide - 0.75 : wide, height);
    if (isPending(record, block, brush.position)) {
      context.fillStyle = patterns.pending;
      context.fillRect(left, piece.y, wide, height);
    }
    const slack = partsOf(record, block, brush.rules).slack * piece.scale;
    if (slack >= 2) {
      context.fillStyle = patterns.slack;
      context.fillRect(end - slack, piece.y, slack, height);
    }
    context.globalAlpha = 1;
    drawn = end;
  }
}

/** x of the two ends of a block on a piece. */
export function placeOf(record: MemoryColumns, piece: Piece, block: number): [number, number] {
  const offset = (record.block_address[block] ?? 0) - piece.segment.address - piece.from;
  const left = piece.x + offset * piece.scale;
  return [left, left + (record.block_bytes[block] ?? 0) * piece.scale];
}

/** The outline of the chosen segment, of what is in the way, then of the chosen block. */
export function paintSelection(
  { context, palette, record, obstacles }: Brush,
  pieces: readonly Piece[],
  height: number,
  segment: Segment | null,
  block: number | null,
  hover: number | null,
): void {
  for (const piece of pieces) {
    if (piece.segment === segment) {
      outline(context, palette.select, 2, piece.x, piece.y, piece.width, height);
    }
    const marked = obstacles.length > 0 ? runsOf(piece.segment.blocks, obstacles) : [];
    for (const [first, last, colour, wide] of [
      ...marked.map(([first, last]) => [first, last, palette.bad, 2.5] as const),
      [hover, hover, palette.ink, 1.5],
      [block, block, palette.ink, 2.5],
    ] as const) {
      if (first === null || last === null || !piece.segment.blocks.includes(first)) continue;
      const [from] = placeOf(record, piece, first);
      const left = Math.max(piece.x, from);
      const right = Math.min(piece.x + piece.width, placeOf(record, piece, last)[1]);
      if (right > left || (from >= piece.x && from < piece.x + piece.width))
        outline(context, colour, wide, left, piece.y, Math.max(2, right - left), height);
    }
  }
}

/** First and last of the chosen blocks that follow one another in a segment: one outline for each. */
function runsOf(blocks: readonly number[], chosen: readonly number[]): [number, number][] {
  const wanted = new Set(chosen);
  const runs: [number, number][] = [];
  let open: [number, number] | null = null;
  for (const block of blocks) {
    if (!wanted.has(block)) open = null;
    else if (open) open[1] = block;
    else runs.push((open = [block, block]));
  }
  return runs;
}

function outline(
  context: CanvasRenderingContext2D,
  colour: string,
  wide: number,
  x: number,
  y: number,
  width: number,
  height: number,
): void {
  context.strokeStyle = colour;
  context.lineWidth = wide;
  context.beginPath();
  context.roundRect(x - wide / 2, y - wide / 2, width + wide, height + wide, 2);
  context.stroke();
}
