/**
 * Where every segment is on the map. A segment is a strip whose area is its bytes, on one scale
 * for the large pool; the small pool, whose segments are all 2 MiB, has a wider one of its own.
 * Within a stream and pool they are grouped by size, and inside a group full ones come first.
 */
import {
  fullnessOf,
  mainCategory,
  ORDER,
  medianOf,
  sectionsOf,
  sizesOf,
  type Fullness,
  type Group,
  type Section,
} from './map-groups';
import type { Moment, Segment } from './moment';

export const MAP_LEFT = 160;
const MAP_RIGHT = 18;
const HEADER = 18;
const GROUP_GAP = 5;
const GAP = 1;
/** Narrower strips show nothing of their blocks: their group becomes one bar of shares. */
const NARROWEST = 4;
const PILL_ROWS = 3;
const SMALL_ROWS = 2;
/** Strip heights to choose from: few segments may stand taller, as long as all fit. */
const HEIGHTS = [24, 16, 12, 8];
/** A map that fills less of its room is drawn on a finer scale. */
const EMPTIEST = 0.4;
const MIB = 2 ** 20;

/** A range of a segment in one row; only a segment wider than a row has several. */
export interface Piece {
  segment: Segment;
  x: number;
  y: number;
  width: number;
  /** Offset of its first byte. */
  from: number;
  /** Pixels per byte. */
  scale: number;
}

export interface Pill {
  text: { count: number; fullness: Fullness; category: number; pool: number };
  x: number;
  y: number;
}

export interface MapLayout {
  sections: Section[];
  pieces: Piece[];
  pills: Pill[];
  strip: number;
  /** Bytes of a pixel in the large pool. */
  bytesPerPixel: number;
  /** How much wider a byte of the small pool is. */
  magnification: number;
  width: number;
  height: number;
  /** The height it was to fit. */
  room: number;
}

/**
 * Places everything in `width` pixels, in `height` if the scale can be chosen so. The scale of
 * `before` is kept while it still does, so that a strip keeps its length as the scrubber moves.
 */
export function layMap(
  moment: Moment,
  width: number,
  height: number,
  before: MapLayout | null = null,
): MapLayout {
  const sections = sectionsOf(moment);
  const room = Math.max(80, width - MAP_LEFT - MAP_RIGHT);
  if (before?.width === width && before.room === height) {
    const again = place(sections, room, before.bytesPerPixel, before.strip);
    if (again.height <= height && again.height > height * EMPTIEST)
      return { ...again, width, room: height };
  }
  const first = firstScale(sections, room);
  let layout = place(sections, room, first, HEIGHTS[0] ?? 8);
  // Coarser than this, most strips would be bars; what does not fit then is scrolled to.
  const coarsest = Math.max(first, medianOf(sections) / NARROWEST);
  for (let scale = first; layout.height > height && scale <= coarsest; scale *= 2)
    for (const strip of HEIGHTS) {
      layout = place(sections, room, scale, strip);
      if (layout.height <= height) break;
    }
  return { ...layout, width, room: height };
}

/** The finest power of two at which the largest segment fits a row, or most would be too narrow. */
function firstScale(sections: readonly Section[], room: number): number {
  const sizes = sizesOf(sections);
  const largest = sizes[sizes.length - 1] ?? 2 * MIB;
  const median = medianOf(sections);
  let scale = MIB / 64;
  while (largest / scale > room) scale *= 2;
  while (median / scale < 6 && scale > MIB / 64) scale /= 2;
  return scale;
}

function place(
  sections: readonly Section[],
  room: number,
  bytesPerPixel: number,
  strip: number,
): MapLayout {
  const pieces: Piece[] = [];
  const pills: Pill[] = [];
  let magnification = 1;
  let y = 2;
  const placed = sections.map((section) => {
    const titled = section.named || !section.small;
    const title = titled ? y : null;
    if (titled) y += HEADER;
    const groups = section.groups.map((group) => {
      const scale = scaleOf(group, room, bytesPerPixel);
      if (group.small) magnification = scale * bytesPerPixel;
      const row = new Row(room, y, strip);
      const next = placeGroup(group, row, scale, pieces, pills);
      y = next.y + next.height + GROUP_GAP;
      return next;
    });
    return { ...section, y: title, groups };
  });
  return {
    sections: placed,
    pieces,
    pills,
    strip,
    bytesPerPixel,
    magnification,
    width: 0,
    height: y,
    room: 0,
  };
}

/** Pixels per byte: that of the map, or as much as lets a small pool fill its row. */
function scaleOf(group: Group, room: number, bytesPerPixel: number): number {
  if (!group.small) return 1 / bytesPerPixel;
  const total = group.segments.reduce((sum, { bytes }) => sum + bytes, 0);
  const filling = (room - group.segments.length * GAP) / Math.max(1, total);
  const one = group.segments[0]?.bytes ?? 1;
  const rows = filling * one < 12 ? SMALL_ROWS : 1;
  return Math.min(filling * rows * (rows > 1 ? 0.96 : 1), room / 3 / one);
}

class Row {
  x = 0;
  rows = 1;

  constructor(
    readonly room: number,
    readonly top: number,
    readonly strip: number,
  ) {}

  get y(): number {
    return this.top + (this.rows - 1) * (this.strip + GAP);
  }

  next(): void {
    this.x = 0;
    this.rows += 1;
  }

  get height(): number {
    return this.rows * (this.strip + GAP) - GAP;
  }
}

function placeGroup(group: Group, row: Row, scale: number, pieces: Piece[], pills: Pill[]): Group {
  const total = group.segments.reduce((sum, { bytes }) => sum + bytes, 0);
  const mean = (total / group.segments.length) * scale;
  if (mean < NARROWEST) return { ...group, y: row.top, height: row.strip, bar: shares(group) };
  const runs = new Runs(pills, row);
  for (const segment of group.segments) {
    const wide = Math.max(1, segment.bytes * scale);
    if (row.x > 0 && row.x + wide > row.room + 0.5) row.next();
    runs.add(segment);
    let from = 0;
    while (from < segment.bytes) {
      const width = Math.min((segment.bytes - from) * scale, row.room - row.x);
      pieces.push({
        segment,
        x: MAP_LEFT + row.x,
        y: row.y,
        width: Math.max(1, width),
        from,
        scale,
      });
      from += Math.max(1, width / scale);
      row.x += width + GAP;
      if (from < segment.bytes - 1) row.next();
      else break;
    }
  }
  runs.end();
  return { ...group, y: row.top, height: row.height };
}

function shares(group: Group): [number, number, number] {
  const sums: [number, number, number] = [0, 0, 0];
  for (const segment of group.segments) sums[ORDER[fullnessOf(segment)]] += segment.bytes;
  return sums;
}

/** Runs of segments that look alike; one over several rows says how many they are. */
class Runs {
  private key = '';
  private count = 0;
  private first = 0;
  private last: Segment | null = null;

  constructor(
    private readonly pills: Pill[],
    private readonly row: Row,
  ) {}

  add(segment: Segment): void {
    const fullness = fullnessOf(segment);
    const key = fullness === 'full' ? `full ${mainCategory(segment)}` : fullness;
    if (key !== this.key) {
      this.end();
      this.key = key;
      this.first = this.row.y;
    }
    this.count += 1;
    this.last = segment;
  }

  end(): void {
    const { row, last } = this;
    const rows = Math.round((row.y - this.first) / (row.strip + GAP)) + 1;
    if (last && rows >= PILL_ROWS && fullnessOf(last) !== 'partly')
      this.pills.push({
        text: {
          count: this.count,
          fullness: fullnessOf(last),
          category: mainCategory(last),
          pool: last.pool,
        },
        x: MAP_LEFT + row.room / 2,
        y: (this.first + row.y + row.strip) / 2,
      });
    this.count = 0;
    this.last = null;
  }
}
