/**
 * Gutters between the rows of one box, and the orthogonal lines that run through them.
 *
 * A line leaves its source at the bottom, may run sideways in the gutter below it to its lane, goes
 * down the lane, and enters its target from the gutter above or from the right. Runs of different
 * sources that overlap in one gutter get different tracks, and the gutter grows with them.
 */
import type { Extent, Link, Placement } from './place';
import { assignTracks, type Margins, type Run } from './tracks';

export interface Routed {
  /** Top of every row, measured from the top of the first gutter. */
  tops: number[];
  /** Total height including the gutters above the first and below the last row. */
  height: number;
  /** Corner points `x0, y0, x1, y1, …` of every link. */
  points: number[][];
  /** Where links cross the box's border: x of every link that starts or ends there. */
  portX: number[];
}

interface Path {
  start: number;
  lane: number;
  end: number;
  /** Gutter in which it runs to its lane and in which it runs to its target, -1 for none. */
  out: number;
  into: number;
  side: boolean;
}

/** Routes every link of a placed box; null when a run would have to cross a tall item. */
export function route(
  links: readonly Link[],
  placed: Placement,
  extents: readonly Extent[],
  margins: Margins,
): Routed | null {
  const { rows, rank } = placed;
  const free = occupancy(placed, extents);
  const ports = entryPorts(links, placed);
  const paths = links.map((link, index) => pathOf(link, index, placed, extents, free, ports));
  const runs = new Map<string, Run>();
  const trackOf = (index: number, gutter: number, from: number, to: number): Run => {
    const link = links[index];
    const key = `${gutter}/${link.source}/${from}`;
    const known = runs.get(key);
    const width = Math.max(link.width, known?.width ?? 0);
    const run = known ?? { gutter, from, to, source: link.source, width, y: 0 };
    run.width = width;
    // One run serves several targets of a source: it reaches the farthest one on each side.
    if (Math.abs(to - from) > Math.abs(run.to - from)) run.to = to;
    runs.set(key, run);
    return run;
  };
  const legs = paths.map((path, index) => ({
    out: path.out >= 0 ? trackOf(index, path.out, path.start, path.lane) : null,
    into: path.into >= 0 ? trackOf(index, path.into, path.lane, path.end) : null,
  }));
  if (crosses([...runs.values()], placed, extents)) return null;
  const gutters = assignTracks([...runs.values()], rows, margins);
  const tops: number[] = [];
  const heights = rowHeights(placed, extents, gutters.heights);
  let y = 0;
  for (let row = 0; row <= rows; row += 1) {
    for (const run of gutters.runs[row] ?? []) run.y += y;
    y += gutters.heights[row];
    if (row < rows) {
      tops.push(y);
      y += heights[row];
    }
  }
  const height = y;
  const points = paths.map((path, index) => {
    const link = links[index];
    const { from, to } = link;
    const startY = from < 0 ? 0 : tops[rank[from]] + extents[from].height;
    const target = extents[to];
    const top = to < extents.length ? tops[rank[to]] : height;
    const line = [path.start, startY];
    const leg = legs[index];
    if (leg?.out) line.push(path.start, leg.out.y, path.lane, leg.out.y);
    if (path.side && target) {
      const middle = top + target.height / 2;
      line.push(path.lane, middle, placed.x[to] + target.right, middle);
      return line;
    }
    if (leg?.into) line.push(path.lane, leg.into.y, path.end, leg.into.y);
    line.push(path.end, top);
    return line;
  });
  const portX = paths.map((path, index) => (links[index].from < 0 ? path.start : path.end));
  return { tops, height, points, portX };
}

/** Heights of the rows; a tall item takes what the rows and gutters beside it do not give. */
function rowHeights(
  placed: Placement,
  extents: readonly Extent[],
  gutters: readonly number[],
): number[] {
  const heights = new Array<number>(placed.rows).fill(0);
  const byBottom = extents
    .map((_, item) => item)
    .sort((a, b) => placed.bottom[a] - placed.bottom[b]);
  for (const item of byBottom) {
    const last = placed.bottom[item];
    let need = extents[item].height;
    for (let row = placed.rank[item]; row < last; row += 1) need -= heights[row] + gutters[row + 1];
    heights[last] = Math.max(heights[last], need);
  }
  return heights;
}

/** Whether a sideways run would cross an item that reaches over its gutter. */
function crosses(runs: readonly Run[], placed: Placement, extents: readonly Extent[]): boolean {
  return extents.some((extent, item) => {
    const [first, last] = [placed.rank[item], placed.bottom[item]];
    if (first === last) return false;
    const x = placed.x[item];
    return runs.some(
      ({ gutter, from, to }) =>
        gutter > first &&
        gutter <= last &&
        Math.min(from, to) < x + extent.right &&
        Math.max(from, to) > x - extent.left,
    );
  });
}

type Free = (row: number, left: number, right: number) => boolean;

/** Whether nothing stands between two x positions of a row. */
function occupancy(placed: Placement, extents: readonly Extent[]): Free {
  const taken: [number, number][][] = Array.from({ length: placed.rows }, () => []);
  extents.forEach((extent, item) => {
    const x = placed.x[item];
    for (let row = placed.rank[item]; row <= placed.bottom[item]; row += 1)
      taken[row].push([x - extent.left, x + extent.right]);
  });
  return (row, left, right) => !(taken[row] ?? []).some(([a, b]) => a < right && b > left);
}

function pathOf(
  link: Link,
  index: number,
  placed: Placement,
  extents: readonly Extent[],
  free: Free,
  ports: ReadonlyMap<string, number>,
): Path {
  const { rank, rows, x } = placed;
  const lane = placed.lane[index];
  const fromRow = link.from < 0 ? -1 : placed.bottom[link.from];
  const inside = link.to < extents.length;
  const toRow = inside ? rank[link.to] : rows;
  const target = inside ? x[link.to] + link.toX : NaN;
  const source = link.from < 0 ? (ports.get(link.source) ?? 0) : x[link.from] + link.fromX;
  const direct = toRow === fromRow + 1 && !placed.side[index];
  if (direct && !inside) return straight(source);
  if (direct || lane === undefined) {
    const out = source === target ? -1 : fromRow + 1;
    return { start: source, lane: target, end: target, out, into: -1, side: false };
  }
  const start = source;
  const out = start === lane ? -1 : fromRow + 1;
  const right = inside ? x[link.to] + extents[link.to].right : 0;
  if (placed.side[index] && lane > right && free(toRow, right + 1, lane - 1))
    return { start, lane, end: right, out, into: -1, side: true };
  const end = inside ? target : lane;
  return { start, lane, end, out, into: end === lane ? -1 : toRow, side: false };
}

/** x at which each outside value comes in: straight above the target nearest to the trunk. */
function entryPorts(links: readonly Link[], placed: Placement): Map<string, number> {
  const ports = new Map<string, number>();
  links.forEach((link, index) => {
    if (link.from >= 0) return;
    const target = (placed.x[link.to] ?? 0) + link.toX;
    const direct = (placed.rank[link.to] ?? 0) === 0 && !placed.side[index];
    const x = direct ? target : (placed.lane[index] ?? target);
    const known = ports.get(link.source);
    if (known === undefined || Math.abs(x) < Math.abs(known)) ports.set(link.source, x);
  });
  return ports;
}

function straight(x: number): Path {
  return { start: x, lane: x, end: x, out: -1, into: -1, side: false };
}
