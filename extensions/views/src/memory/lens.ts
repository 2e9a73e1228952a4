/** One segment at full width: its blocks with names and sizes, and where it is on the map. */
import { h } from '../graph/dom';
import { formatBytes } from '../graph/format';
import { drawText } from '../graph/text';
import { titleOf } from './blocks';
import { MAP_LEFT, type Piece } from './map-layout';
import { paintPiece, paintSelection, placeOf, type Brush } from './map-paint';
import { holesOf, isPending, type Segment } from './moment';
import { ticks } from './scale';
import { CATEGORIES } from './series';

const FUNNEL = 14;
const STRIP = 34;
const AXIS = 16;
export const LENS_HEIGHT = FUNNEL + STRIP + AXIS + 2;
const NAMED = 88;
const SIZED = 40;

export class Lens {
  readonly canvas = h('canvas', { class: 'wv-lens', 'aria-hidden': 'true' });
  private piece: Piece | null = null;

  /** Draws a segment; `places` are where it is on the map above. */
  draw(
    brush: Brush,
    width: number,
    segment: Segment,
    places: readonly Piece[],
    mapScale: number,
    block: number | null,
    hover: number | null,
  ): void {
    const { context } = brush;
    const room = width - MAP_LEFT - 18;
    const scale = room / Math.max(1, segment.bytes);
    const piece = { segment, x: MAP_LEFT, y: FUNNEL, width: room, from: 0, scale };
    this.piece = piece;
    context.clearRect(0, 0, width, LENS_HEIGHT);
    this.funnel(brush, piece, places);
    paintPiece(brush, piece, STRIP);
    this.names(brush, piece);
    this.labels(brush, piece, scale / mapScale);
    this.axis(brush, piece);
    paintSelection(brush, [piece], STRIP, segment, block, hover);
  }

  /** The block under a point of the canvas, null for free memory and beside the strip. */
  blockAt(brush: Pick<Brush, 'record'>, x: number, y: number): number | null {
    const { piece } = this;
    if (!piece || y < FUNNEL || y > FUNNEL + STRIP) return null;
    const found = piece.segment.blocks.find((block) => {
      const [from, to] = placeOf(brush.record, piece, block);
      return x >= from && x < Math.max(to, from + 1);
    });
    return found ?? null;
  }

  private funnel({ context, palette }: Brush, piece: Piece, places: readonly Piece[]): void {
    const place = places[0];
    if (!place) return;
    context.fillStyle = palette.select;
    context.globalAlpha = 0.12;
    context.beginPath();
    context.moveTo(place.x, 0);
    context.lineTo(place.x + place.width, 0);
    context.lineTo(piece.x + piece.width, FUNNEL - 1);
    context.lineTo(piece.x, FUNNEL - 1);
    context.fill();
    context.globalAlpha = 1;
  }

  private names(brush: Brush, piece: Piece): void {
    const { context, palette, record } = brush;
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    for (const block of piece.segment.blocks) {
      const [from, to] = placeOf(record, piece, block);
      const wide = to - from;
      if (wide < SIZED) continue;
      const category = CATEGORIES[record.block_category[block] ?? 6] ?? 'unknown';
      if (isPending(record, block, brush.position)) {
        context.fillStyle = palette.categories[category]?.fill ?? palette.ink2;
        context.fillRect(from + 3, FUNNEL + 4, Math.min(wide - 6, NAMED), STRIP - 8);
      }
      context.fillStyle = palette.categories[category]?.ink ?? palette.ink;
      const size = formatBytes(record.block_bytes[block] ?? 0);
      if (wide >= NAMED) {
        context.font = `600 11px ${palette.font}`;
        drawText(context, titleOf(record, block), from + 6, FUNNEL + 11, wide - 12);
      }
      context.font = `11px ${palette.font}`;
      if (context.measureText(size).width <= wide - 10)
        context.fillText(size, from + 6, FUNNEL + (wide >= NAMED ? 25 : 17));
    }
    context.fillStyle = palette.ink;
    context.textAlign = 'center';
    for (const [from, to] of holesOf(record, piece.segment)) {
      const wide = (to - from) * piece.scale;
      if (wide < SIZED + 12) continue;
      const text = `free ${formatBytes(to - from)}`;
      context.font = `11px ${palette.font}`;
      const room = Math.min(wide - 4, context.measureText(text).width + 10);
      const middle = piece.x + ((from + to) / 2) * piece.scale;
      context.fillStyle = palette.token('--wb-surface');
      context.fillRect(middle - room / 2, FUNNEL + 9, room, 16);
      context.fillStyle = palette.ink;
      drawText(context, text, middle, FUNNEL + 17, room);
    }
  }

  private labels({ context, palette }: Brush, piece: Piece, times: number): void {
    context.textAlign = 'left';
    context.font = `600 11px ${palette.font}`;
    context.fillStyle = palette.ink;
    context.fillText('Lens', 16, FUNNEL + 9);
    const used = context.measureText('Lens').width;
    context.font = `11px ${palette.font}`;
    context.fillStyle = palette.ink2;
    context.fillText(
      ` × ${times < 10 ? times.toFixed(1) : Math.round(times)}`,
      16 + used,
      FUNNEL + 9,
    );
    context.fillText(`0x${piece.segment.address.toString(16)}`, 16, FUNNEL + 24);
  }

  private axis({ context, palette }: Brush, piece: Piece): void {
    const { bytes } = piece.segment;
    let unit = 1;
    while (bytes / unit >= 1024) unit *= 1024;
    const name = formatBytes(unit).split(' ')[1] ?? '';
    context.fillStyle = palette.ink2;
    context.font = `11px ${palette.font}`;
    const y = FUNNEL + STRIP + 10;
    for (const mark of ticks(0, bytes / unit, Math.min(7, Math.floor(piece.width / 60)))) {
      const x = piece.x + mark * unit * piece.scale;
      const last = x > piece.x + piece.width - 30;
      context.textAlign = last ? 'right' : mark === 0 ? 'left' : 'center';
      context.fillText(mark === 0 ? `0 ${name}` : String(Number(mark.toFixed(2))), x, y);
    }
  }
}
