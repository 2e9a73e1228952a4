/** Rows and chains of one box: what can be said before any size is known. */
import type { Link } from './place';

type PlanLink = Pick<Link, 'from' | 'to' | 'width' | 'soft'>;

/** Rows and chains: all that can be said before the sizes are known. */
export interface Plan {
  count: number;
  rank: number[];
  rows: number;
  chains: number[][];
  trunk: boolean[];
  incoming: number[][];
  outgoing: number[][];
}

/**
 * Ranks the items and finds their chains. The trunk is the chain of the most operations (`weights`
 * per item), and starts at a preferred item where there is one.
 */
export function plan(
  weights: readonly number[],
  links: readonly PlanLink[],
  preferred: ReadonlySet<number>,
): Plan {
  const count = weights.length;
  const incoming: number[][] = Array.from({ length: count }, () => []);
  const outgoing: number[][] = Array.from({ length: count }, () => []);
  links.forEach((link, index) => {
    if (link.to < count) incoming[link.to].push(index);
    if (link.from >= 0) outgoing[link.from].push(index);
  });
  const rank = ranks(count, links, incoming, outgoing);
  const rows = count === 0 ? 0 : Math.max(...rank) + 1;
  const chains = findChains(weights, links, outgoing, preferred);
  const trunk = new Array<boolean>(count).fill(false);
  chains[0]?.forEach((item) => (trunk[item] = true));
  return { count, rank, rows, chains, trunk, incoming, outgoing };
}

function ranks(
  count: number,
  links: readonly PlanLink[],
  incoming: readonly number[][],
  outgoing: readonly number[][],
): number[] {
  const rank = new Array<number>(count).fill(0);
  for (let item = 0; item < count; item += 1)
    for (const index of incoming[item]) {
      const from = links[index].from;
      if (from >= 0) rank[item] = Math.max(rank[item], rank[from] + 1);
    }
  // What depends on nothing stands right above what uses it, not at the top of the box.
  for (let item = count - 1; item >= 0; item -= 1) {
    if (incoming[item].length > 0) continue;
    const uses = outgoing[item].map((index) => links[index].to);
    const below = uses.filter((to) => to < count).map((to) => rank[to]);
    if (below.length > 0 && below.length === uses.length) rank[item] = Math.min(...below) - 1;
  }
  return rank;
}

/** Longest chains first in forward order; the very longest one comes first. */
function findChains(
  weights: readonly number[],
  links: readonly PlanLink[],
  outgoing: readonly number[][],
  preferred: ReadonlySet<number>,
): number[][] {
  const count = weights.length;
  const down = [...weights];
  const next = new Array<number>(count).fill(-1);
  for (let item = count - 1; item >= 0; item -= 1) {
    let widest = -1;
    for (const index of outgoing[item]) {
      const link = links[index];
      if (link.soft || link.to >= count) continue;
      const length = down[link.to] + weights[item];
      if (length > down[item] || (length === down[item] && link.width > widest)) {
        down[item] = length;
        widest = link.width;
      }
    }
  }
  const taken = new Array<boolean>(count).fill(false);
  const follow = (start: number): number[] => {
    const chain: number[] = [];
    for (let item = start; item >= 0 && !taken[item]; item = next[item]) {
      chain.push(item);
      taken[item] = true;
      let best = -1;
      let score = -1;
      for (const index of outgoing[item]) {
        const link = links[index];
        if (link.soft || link.to >= count || taken[link.to]) continue;
        const value = down[link.to] * 1000 + link.width;
        if (value > score) [best, score] = [link.to, value];
      }
      next[item] = best;
    }
    return chain;
  };
  const longest = (items: Iterable<number>): number => {
    let top = -1;
    for (const item of items) if (top < 0 || down[item] > down[top]) top = item;
    return top;
  };
  const top =
    preferred.size > 0 ? longest([...preferred].sort((a, b) => a - b)) : longest(down.keys());
  const chains = count > 0 ? [follow(top)] : [];
  for (let item = 0; item < count; item += 1) if (!taken[item]) chains.push(follow(item));
  return chains;
}
