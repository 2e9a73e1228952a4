/** Which segments stand together on the map: by private pool, stream and pool, then by size. */
import type { Moment, Segment } from './moment';

const FEWEST_OF_A_SIZE = 3;
const MOST_GROUPS = 12;

export type Fullness = 'full' | 'partly' | 'empty';

export interface Group {
  /** Bytes of each, 0 where sizes differ. */
  bytes: number;
  small: boolean;
  segments: Segment[];
  y: number;
  height: number;
  /** Bytes of full, partly used and empty segments, where strips are too narrow to draw. */
  bar: [number, number, number] | null;
}

export interface Section {
  small: boolean;
  stream: number;
  pool: number;
  /** Whether the section must say its stream or pool, as there are others. */
  named: boolean;
  segments: Segment[];
  /** y of its title; null where the only group carries it. */
  y: number | null;
  groups: Group[];
}

export function fullnessOf(segment: Segment): Fullness {
  if (segment.used === 0) return 'empty';
  return segment.used >= segment.bytes ? 'full' : 'partly';
}

/** The category with the most bytes in a segment. */
export function mainCategory(segment: Segment): number {
  let best = 0;
  segment.categories.forEach((bytes, category) => {
    if (bytes > (segment.categories[best] ?? 0)) best = category;
  });
  return best;
}

/** The pools of every stream, the main one first. */
export function sectionsOf(moment: Moment): Section[] {
  const { main } = moment;
  const found = new Map<string, Section>();
  for (const segment of moment.segments) {
    const { small, stream, pool } = segment;
    const key = `${pool} ${stream} ${small}`;
    const fresh = { small, stream, pool, named: false, segments: [], y: null, groups: [] };
    const section = found.get(key) ?? fresh;
    section.segments.push(segment);
    found.set(key, section);
  }
  const rank = ({ pool, stream, small }: Section): number =>
    pool * 4 + (stream === main ? 0 : 2) + (small ? 0 : 1);
  const sections = [...found.values()].sort((a, b) => rank(a) - rank(b) || a.stream - b.stream);
  const several = sections.some(({ pool, stream }) => pool !== 0 || stream !== main);
  for (const section of sections) {
    section.named = several;
    section.groups = groupsOf(section);
  }
  return sections;
}

function groupsOf({ segments, small }: Section): Group[] {
  const bySize = new Map<number, Segment[]>();
  for (const segment of segments) {
    const size = small ? 0 : segment.bytes;
    bySize.set(size, [...(bySize.get(size) ?? []), segment]);
  }
  const sizes = [...bySize].sort((a, b) => b[0] - a[0]);
  const kept = sizes
    .filter(([, members]) => members.length >= FEWEST_OF_A_SIZE)
    .sort((a, b) => b[0] * b[1].length - a[0] * a[1].length)
    .slice(0, MOST_GROUPS);
  const own = new Set(sizes.length <= 4 ? sizes : kept);
  const rest = sizes.filter((size) => !own.has(size)).flatMap(([, members]) => members);
  const groups = sizes
    .filter((size) => own.has(size))
    .map(([bytes, members]) => groupOf(bytes, small, members));
  if (rest.length > 0) groups.push(groupOf(0, small, rest));
  return groups;
}

/** Full segments come first. */
export const ORDER: Record<Fullness, number> = { full: 0, partly: 1, empty: 2 };

function groupOf(bytes: number, small: boolean, members: Segment[]): Group {
  const segments = [...members].sort(
    (a, b) =>
      ORDER[fullnessOf(a)] - ORDER[fullnessOf(b)] ||
      mainCategory(a) - mainCategory(b) ||
      b.bytes - a.bytes ||
      b.used - a.used ||
      a.address - b.address,
  );
  const size = small
    ? segments.every((one) => one.bytes === segments[0]?.bytes)
      ? (segments[0]?.bytes ?? 0)
      : 0
    : bytes;
  return { bytes: size, small, segments, y: 0, height: 0, bar: null };
}

/** Bytes of the segments of the large pool, from the smallest. */
export function sizesOf(sections: readonly Section[]): number[] {
  const large = sections.filter(({ small }) => !small);
  return large.flatMap(({ segments }) => segments.map(({ bytes }) => bytes)).sort((a, b) => a - b);
}

/** Their median. */
export function medianOf(sections: readonly Section[]): number {
  const sizes = sizesOf(sections);
  return sizes[sizes.length >> 1] ?? 2 * 2 ** 20;
}
