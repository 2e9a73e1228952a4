/**
 * One axis for two recordings: a phase that both have stands at the same place in both, as wide as
 * its share of the two recordings is on average. Without phases both fill the axis.
 */
import type { Warp } from '../memory/scale';
import type { MemoryColumns } from '../memory/series';

type Phase = MemoryColumns['phases'][number];

/** Phases beyond these are not looked at: pairing takes the product of both numbers. */
const MOST = 400;

export interface Alignment {
  a: Warp;
  b: Warp;
  /** Pairs of phases that stand below each other. */
  paired: number;
}

/** The shared axis, from 0 to 1. */
export function align(a: MemoryColumns, b: MemoryColumns): Alignment {
  const [phasesA, phasesB] = [inOrder(a.phases), inOrder(b.phases)];
  const pairs = pair(phasesA, phasesB);
  const knots: [number, number][] = [[0, 0]];
  for (const [first, second] of pairs)
    knots.push([first.start, second.start], [first.end, second.end]);
  const last = [a.event_time_us.length, b.event_time_us.length] as const;
  knots.push([last[0], last[1]]);
  const places = [0];
  for (let at = 1; at < knots.length; at += 1) {
    const share = ([0, 1] as const).map(
      (side) => ((knots[at]?.[side] ?? 0) - (knots[at - 1]?.[side] ?? 0)) / Math.max(1, last[side]),
    );
    places.push((places[at - 1] ?? 0) + ((share[0] ?? 0) + (share[1] ?? 0)) / 2);
  }
  const warp = (side: 0 | 1): Warp => ({ positions: knots.map((knot) => knot[side]), places });
  return { a: warp(0), b: warp(1), paired: pairs.length };
}

/** Phases one after another; what overlaps the one before is left out. */
export function inOrder(phases: readonly Phase[]): Phase[] {
  const found: Phase[] = [];
  for (const phase of [...phases].sort((x, y) => x.start - y.start).slice(0, MOST))
    if (phase.start >= (found.at(-1)?.end ?? 0)) found.push(phase);
  return found;
}

/** The longest row of phases that both have, in order. */
export function pair(a: readonly Phase[], b: readonly Phase[]): [Phase, Phase][] {
  const width = b.length + 1;
  const best = new Int32Array((a.length + 1) * width);
  const at = (i: number, j: number): number => best[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      best[i * width + j] =
        a[i]?.name === b[j]?.name ? 1 + at(i + 1, j + 1) : Math.max(at(i + 1, j), at(i, j + 1));
  const found: [Phase, Phase][] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    const [first, second] = [a[i], b[j]];
    if (first && second && first.name === second.name) {
      found.push([first, second]);
      i += 1;
      j += 1;
    } else if (at(i + 1, j) >= at(i, j + 1)) i += 1;
    else j += 1;
  }
  return found;
}
