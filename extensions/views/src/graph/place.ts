/**
 * Rows and columns inside one box.
 *
 * Rows are longest-path ranks, so data flows down. Columns are chains: the longest one is the trunk
 * and stands straight at x = 0, every other chain goes to the right of what already occupies its
 * rows, short spans first, so a skip or an exit is read as a side lane. Edges that follow no chain
 * get a lane of their own, one per source. Every vertical run has reserved space, so none of them
 * can cross a node; horizontal runs stay in the gutters between rows (`route.ts`).
 *
 * Items arrive in topological order. The cost is linear in items, links and occupied rows.
 */

import type { Plan } from './plan';

export interface Extent {
  left: number;
  right: number;
  height: number;
}

/** A link between two items; `from` is -1 and `to` is the number of items at the box's border. */
export interface Link {
  from: number;
  to: number;
  /** Offset of the port from the item's axis. */
  fromX: number;
  toX: number;
  /** Links of one source share a lane. */
  source: string;
  width: number;
  /** Whether the target can be entered from its right side. */
  side: boolean;
  /** Whether nothing flows along it: it orders rows, and chains do not follow it. */
  soft?: boolean;
}

export interface Placement {
  rank: number[];
  /** Last row of every item, `rank` for all but tall ones. */
  bottom: number[];
  rows: number;
  /** Axis of every item. */
  x: number[];
  /** Lane of every link; undefined where it needs none. */
  lane: (number | undefined)[];
  /** Whether the link enters its target at the side. */
  side: boolean[];
  /** Whether the item stands on the trunk. */
  trunk: boolean[];
}

const CHAIN_GAP = 22;
const LANE_GAP = 8;

interface Vertical {
  first: number;
  last: number;
  items: number[];
  links: number[];
  width: number;
  /** Whether nothing flows along any of its links. */
  soft: boolean;
}

/** Places planned items; with `spanning`, a tall item may reach down beside the rows below it. */
export function place(
  planned: Plan,
  links: readonly Link[],
  extents: readonly Extent[],
  spanning: boolean,
): Placement {
  const { count, rank, rows, chains, trunk, incoming, outgoing } = planned;
  const bottom = spanning ? bottoms(planned, links, extents) : [...rank];
  const rowOf = (item: number): number => (item < 0 ? -1 : item >= count ? rows : rank[item]);
  const bottomOf = (item: number): number => (item < 0 ? -1 : bottom[item]);
  const verticals = chains.map((items) =>
    chainRun(items, links, incoming, outgoing, rowOf, bottomOf),
  );
  // The first input of an item comes in at the top; only further ones may come in at the side.
  const first = new Set(verticals.flatMap((vertical) => vertical.links));
  const side = links.map((link, index) => link.side && link.to < count && !first.has(index));
  const lastRow = (index: number): number => rowOf(links[index].to) - (side[index] ? 0 : 1);
  for (const chain of verticals) extendTail(chain, first, outgoing, lastRow);
  verticals.push(...lanes(links, verticals, bottomOf, lastRow));
  const { x, lane } = pack(verticals, rows, rank, bottom, links, extents, count);
  return { rank, bottom, rows, x, lane, side, trunk };
}

/** Usual pitch of rows: decides over how many of them a tall item reaches. */
const PITCH = 49;

/** Last row of every item: a tall one reaches down as far as it needs and its successor allows. */
function bottoms(planned: Plan, links: readonly Link[], extents: readonly Extent[]): number[] {
  const { rank, rows, count, outgoing, trunk } = planned;
  return rank.map((row, item) => {
    if (trunk[item]) return row;
    const after = outgoing[item].map((index) => links[index].to);
    const next = Math.min(rows, ...after.map((to) => (to < count ? (rank[to] ?? rows) : rows)));
    const need = Math.ceil(extents[item].height / PITCH);
    return Math.max(row, Math.min(next - 1, row + need - 1));
  });
}

/** The column of a chain: its items, the links between them and one link into its head. */
function chainRun(
  items: number[],
  links: readonly Link[],
  incoming: readonly number[][],
  outgoing: readonly number[][],
  rowOf: (item: number) => number,
  bottomOf: (item: number) => number,
): Vertical {
  const head = items[0];
  const last = bottomOf(items[items.length - 1]);
  const run: Vertical = { first: rowOf(head), last, items, links: [], width: 0, soft: false };
  for (let at = 1; at < items.length; at += 1)
    for (const index of outgoing[items[at - 1]])
      if (links[index]?.to === items[at]) run.links.push(index);
  let nearest = -1;
  let row = -2;
  const into = incoming[head];
  const flows = into.filter((index) => !links[index]?.soft);
  for (const index of flows.length > 0 ? flows : into) {
    const above = bottomOf(links[index].from);
    if (above > row) [nearest, row] = [index, above];
  }
  if (nearest >= 0) {
    run.links.push(nearest);
    run.first = Math.min(run.first, row + 1);
  }
  run.soft = run.links.length > 0 && run.links.every((index) => links[index]?.soft);
  return run;
}

/** Lets the chain's last item send its nearest value on straight down, in its own column. */
function extendTail(
  chain: Vertical,
  first: ReadonlySet<number>,
  outgoing: readonly number[][],
  lastRow: (link: number) => number,
): void {
  const tail = chain.items[chain.items.length - 1];
  let nearest = -1;
  let row = Infinity;
  for (const index of outgoing[tail])
    if (!first.has(index) && lastRow(index) < row) [nearest, row] = [index, lastRow(index)];
  if (nearest < 0) return;
  chain.links.push(nearest);
  chain.last = Math.max(chain.last, row);
}

/** One lane per source for the links that follow no chain. */
function lanes(
  links: readonly Link[],
  chains: readonly Vertical[],
  bottomOf: (item: number) => number,
  lastRow: (link: number) => number,
): Vertical[] {
  const chained = new Set(chains.flatMap((chain) => chain.links));
  const bySource = new Map<string, Vertical>();
  links.forEach((link, index) => {
    const first = bottomOf(link.from) + 1;
    const last = lastRow(index);
    if (chained.has(index) || last < first) return;
    const { soft = false } = link;
    const known = bySource.get(link.source);
    const lane = known ?? { first, last, items: [], links: [], width: 0, soft };
    lane.soft &&= soft;
    lane.last = Math.max(lane.last, last);
    lane.links.push(index);
    lane.width = Math.max(lane.width, link.width);
    bySource.set(link.source, lane);
  });
  return [...bySource.values()];
}

function pack(
  verticals: readonly Vertical[],
  rows: number,
  rank: readonly number[],
  bottom: readonly number[],
  links: readonly Link[],
  extents: readonly Extent[],
  count: number,
): Pick<Placement, 'x' | 'lane'> {
  const edge = new Array<number>(rows).fill(-Infinity);
  const x = new Array<number>(count).fill(0);
  const lane = new Array<number | undefined>(links.length).fill(undefined);
  const [main, ...rest] = verticals;
  // Tests stand beside what flows.
  const ordered = rest.sort(
    (a, b) =>
      Number(a.soft) - Number(b.soft) || a.last - a.first - (b.last - b.first) || a.first - b.first,
  );
  for (const vertical of main ? [main, ...ordered] : []) {
    const half = vertical.width / 2 + 2;
    const taken = new Map<number, Extent | undefined>();
    for (const item of vertical.items)
      for (let row = rank[item]; row <= bottom[item]; row += 1) taken.set(row, extents[item]);
    const gap = vertical.items.length > 0 ? CHAIN_GAP : LANE_GAP;
    let axis = vertical === main ? 0 : -Infinity;
    for (let row = vertical.first; row <= vertical.last && vertical !== main; row += 1)
      axis = Math.max(axis, (edge[row] ?? 0) + gap + (taken.get(row)?.left ?? half));
    if (!Number.isFinite(axis)) axis = 0;
    axis = Math.round(axis);
    for (let row = vertical.first; row <= vertical.last; row += 1)
      edge[row] = Math.max(edge[row] ?? 0, axis + (taken.get(row)?.right ?? half));
    for (const item of vertical.items) x[item] = axis;
    for (const index of vertical.links) lane[index] = axis;
  }
  return { x, lane };
}
