/** Where the bars stand: below the bar of their caller, as wide as their bytes. */
import type { FlameSums } from './sums';
import type { FlameTree } from './tree';

export const ROW = 23;
/** Narrower bars are left out, and with them what is below. */
const NARROWEST = 0.7;

export interface Bar {
  node: number;
  x: number;
  width: number;
  /** Rows from the top. */
  row: number;
}

/**
 * The bars of `top` and what is below it. Siblings keep their order, `rank` decides it: a bar must
 * not jump while the scrubber moves.
 */
export function layFlame(sums: FlameSums, rank: Siblings, top: number, width: number): Bar[] {
  const whole = sums.total[top] ?? 0;
  if (whole <= 0) return [];
  const scale = width / whole;
  const bars: Bar[] = [{ node: top, x: 0, width, row: 0 }];
  for (let at = 0; at < bars.length; at += 1) {
    const bar = bars[at] as Bar;
    let x = bar.x;
    for (const node of rank.of(bar.node)) {
      const wide = (sums.total[node] ?? 0) * scale;
      if (wide >= NARROWEST) bars.push({ node, x, width: wide, row: bar.row + 1 });
      x += wide;
    }
  }
  return bars;
}

/** Children, the one with most bytes at the peak first; found out for those that are looked at. */
export class Siblings {
  private readonly known = new Map<number, Int32Array>();

  constructor(
    private readonly tree: FlameTree,
    private readonly most: Float64Array,
  ) {}

  of(node: number): Int32Array {
    let found = this.known.get(node);
    if (!found) {
      const { most } = this;
      found = this.tree
        .childrenOf(node)
        .slice()
        .sort((a, b) => (most[b] ?? 0) - (most[a] ?? 0) || a - b);
      this.known.set(node, found);
    }
    return found;
  }
}
