/** Which boxes are open: at first as many as a person can take in, then as they choose. */
import { isOperation } from './operations';
import { size, type Group, type Item, type Tree } from './groups';

/** More visible nodes than this and the smallest modules start collapsed. */
export const VISIBLE_LIMIT = 300;

/** Groups to open at first: all but rolled-up ones and `closed` ones, then the smallest collapse until it fits. */
export function initiallyOpen(
  tree: Tree,
  limit = VISIBLE_LIMIT,
  closed: (group: Group) => boolean = () => false,
): Set<Group> {
  const open = new Set(tree.groups.filter((one) => one.kind !== 'repeat' && !closed(one)));
  const visible = new Map<Group, number>();
  const count = (group: Group): number => {
    const total = group.children.reduce(
      (sum, child) => sum + (isOperation(child) ? 1 : open.has(child) ? count(child) : 1),
      0,
    );
    visible.set(group, total);
    return total;
  };
  let total = count(tree.root);
  const bySize = [...visible.keys()]
    .filter((group) => group !== tree.root)
    .sort((a, b) => size(a) - size(b) || depthOf(b) - depthOf(a) || b.start - a.start);
  for (const group of bySize) {
    if (total <= limit) break;
    const saved = (visible.get(group) ?? 1) - 1;
    open.delete(group);
    total -= saved;
    for (let up: Group | null = group; up; up = up.parent)
      visible.set(up, (visible.get(up) ?? 1) - saved);
  }
  return open;
}

function depthOf(group: Group): number {
  let depth = 0;
  for (let up = group.parent; up; up = up.parent) depth += 1;
  return depth;
}

/** For every operation the item that stands for it: itself, or the outermost closed box around it. */
export function representatives(tree: Tree, open: ReadonlySet<Group>): Item[] {
  const result: Item[] = [];
  const walk = (group: Group, closed: Item | null): void => {
    for (const child of group.children) {
      if (isOperation(child)) result[child.id] = closed ?? child;
      else walk(child, closed ?? (open.has(child) ? null : child));
    }
  };
  walk(tree.root, null);
  return result;
}

/** Opens every box around an item. */
export function reveal(open: Set<Group>, parent: Group | null): void {
  for (let up = parent; up; up = up.parent) open.add(up);
}
