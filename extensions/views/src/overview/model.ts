/** An overview of a recording, to choose a range of it (`workbench/memory/files/selection.py`). */

export interface Overview {
  readonly title: string;
  readonly device: string;
  /** Numbers of all devices that the file holds; empty where it is the record of one. */
  readonly devices: readonly number[];
  readonly num_events: number;
  /** 0 where the file has no times. */
  readonly duration_us: number;
  readonly peak_position: number;
  readonly peak_bytes: number;
  /** The events to look at first, from one up to another. */
  readonly proposed: readonly [number, number];
  /** So many events can be shown at once. */
  readonly most: number;
  /** Of a few hundred points: the events before what a point stands for, and the time there. */
  readonly position: readonly number[];
  readonly time_us: readonly number[];
  /** The most that was live within it. */
  readonly bytes: readonly number[];
}

/** Events from `start` up to `end`, which is not among them. */
export interface EventRange {
  readonly start: number;
  readonly end: number;
}

/** By the clock, or every event as wide as every other. */
export type Along = 'time' | 'events';

const NUMBERS = ['num_events', 'duration_us', 'peak_position', 'peak_bytes', 'most'] as const;
const LISTS = ['devices', 'proposed', 'position', 'time_us', 'bytes'] as const;

/** What a server sent, checked; throws where it is no overview. */
export function readOverview(given: unknown): Overview {
  const seen = (given ?? {}) as Record<string, unknown>;
  const listed = (name: string): boolean =>
    Array.isArray(seen[name]) && (seen[name] as unknown[]).every(Number.isFinite);
  const { position, time_us, bytes, proposed } = seen as unknown as Overview;
  const whole =
    NUMBERS.every((name) => Number.isFinite(seen[name])) &&
    LISTS.every(listed) &&
    position.length > 0 &&
    position.length === time_us.length &&
    position.length === bytes.length &&
    proposed.length === 2;
  if (!whole) throw new Error('The server sent no overview of the file: reload the page.');
  return { ...(given as Overview), title: String(seen['title']), device: String(seen['device']) };
}

/** Microseconds at a position, between two points as if the clock ran evenly. */
export function timeOf(seen: Overview, position: number): number {
  return between(knots(seen, 'position'), knots(seen, 'time_us'), position);
}

/** The position at a time. */
export function positionOf(seen: Overview, time: number): number {
  return Math.round(between(knots(seen, 'time_us'), knots(seen, 'position'), time));
}

/** The points and the end behind them. */
interface Knots {
  points: readonly number[];
  end: number;
}

function knots(
  { position, time_us, num_events, duration_us }: Overview,
  of: 'position' | 'time_us',
): Knots {
  return of === 'position'
    ? { points: position, end: num_events }
    : { points: time_us, end: duration_us };
}

/**
 * Along a line through points that never go back; called for every point of a curve, at every
 * frame.
 */
function between(from: Knots, to: Knots, value: number): number {
  const at = ({ points, end }: Knots, knot: number): number => points[knot] ?? end;
  let [low, high] = [1, from.points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(from, middle) < value) low = middle + 1;
    else high = middle;
  }
  const [left, right] = [at(from, high - 1), at(from, high)];
  const part = right > left ? Math.max(0, Math.min(1, (value - left) / (right - left))) : 1;
  return at(to, high - 1) + part * (at(to, high) - at(to, high - 1));
}

/** The most bytes that were live in a range, as far as the overview shows. */
export function highestIn(seen: Overview, { start, end }: EventRange): number {
  let most = 0;
  seen.bytes.forEach((bytes, at) => {
    const last = (seen.position[at + 1] ?? seen.num_events + 1) - 1;
    if ((seen.position[at] ?? 0) <= end && last >= start) most = Math.max(most, bytes);
  });
  return most;
}

/** A range in whole events, within the recording, its ends in order and apart. */
export function within(seen: Overview, start: number, end: number): EventRange {
  const last = seen.num_events;
  const low = Math.max(0, Math.min(last - 1, Math.round(Math.min(start, end))));
  return { start: low, end: Math.max(low + 1, Math.min(last, Math.round(Math.max(start, end)))) };
}

/** The same range elsewhere, as long as before. */
export function moved(seen: Overview, { start, end }: EventRange, by: number): EventRange {
  const shift = Math.max(-start, Math.min(seen.num_events - end, Math.round(by)));
  return { start: start + shift, end: end + shift };
}
