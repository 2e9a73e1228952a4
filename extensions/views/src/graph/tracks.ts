/** Tracks in the gutters between rows: sideways runs that overlap get one each. */

export interface Margins {
  /** Above the first and below the last row. */
  edge: number;
  /** Smallest gutter above a row. */
  above: (row: number) => number;
}

/** A sideways run of one source in one gutter. */
export interface Run {
  gutter: number;
  from: number;
  to: number;
  source: string;
  width: number;
  y: number;
}

const FIRST_TRACK = 7;
const TRACK_GAP = 4;
const ARROW_ROOM = 12;

/** Gives overlapping runs of one gutter different tracks; a run that ends where another one starts
 * comes below it, or the two would overlap. */
export function assignTracks(
  runs: Run[],
  rows: number,
  margins: Margins,
): { runs: Run[][]; heights: number[] } {
  const byGutter: Run[][] = Array.from({ length: rows + 1 }, () => []);
  for (const run of runs) byGutter[run.gutter].push(run);
  const heights = byGutter.map((list, gutter) => {
    const least = gutter === 0 || gutter === rows ? margins.edge : margins.above(gutter);
    if (list.length === 0) return least;
    const tracks = color(list);
    let y = FIRST_TRACK;
    const middle: number[] = [];
    for (const width of tracks.widths) {
      middle.push(y + width / 2);
      y += width + TRACK_GAP;
    }
    list.forEach((run, index) => (run.y = middle[tracks.of[index]] ?? 0));
    return Math.max(least, y + ARROW_ROOM);
  });
  return { runs: byGutter, heights };
}

function color(list: readonly Run[]): { of: number[]; widths: number[] } {
  const order = list
    .map((_, index) => index)
    .sort((a, b) => span(list[a]) - span(list[b]) || a - b);
  const of = new Array<number>(list.length).fill(-1);
  const used: { left: number; right: number; source: string }[][] = [];
  const widths: number[] = [];
  const put = (index: number, depth: number): void => {
    const run = list[index];
    if (of[index] >= 0) return;
    let track = 0;
    if (depth < 8)
      list.forEach((other, at) => {
        if (at === index || other.from !== run.to || other.source === run.source) return;
        put(at, depth + 1);
        track = Math.max(track, of[at] + 1);
      });
    const left = Math.min(run.from, run.to) - 6;
    const right = Math.max(run.from, run.to) + 6;
    const clash = (at: number): boolean =>
      (used[at] ?? []).some((o) => o.source !== run.source && o.left < right && o.right > left);
    while (clash(track)) track += 1;
    for (let at = used.length; at <= track; at += 1) {
      used.push([]);
      widths.push(0);
    }
    used[track].push({ left, right, source: run.source });
    widths[track] = Math.max(widths[track] ?? 0, run.width);
    of[index] = track;
  };
  for (const index of order) put(index, 0);
  return { of, widths };
}

function span(run: Run | undefined): number {
  return run ? Math.abs(run.to - run.from) : 0;
}
