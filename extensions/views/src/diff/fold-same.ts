/** Folds what did not change: the diff of two large graphs is read by what did. */
import type { Fold, Item } from '../graph/groups';

/** A fold that turns two or more unchanged neighbours into one box, beside a change. */
export function foldSame(isSame: (operation: number) => boolean): Fold {
  const known = new WeakMap<Item, boolean>();
  const same = (item: Item): boolean => {
    if (item.kind === 'operation') return isSame(item.id);
    const found = known.get(item) ?? item.children.every(same);
    known.set(item, found);
    return found;
  };
  return (children, make) => {
    if (children.every(same)) return children;
    const result: Item[] = [];
    for (let at = 0; at < children.length;) {
      let end = at;
      while (end < children.length && same(children[end] as Item)) end += 1;
      const run = children.slice(at, Math.max(end, at + 1));
      if (run.length < 2) result.push(...run);
      else {
        const group = make('fold', -1, 0);
        group.title = `= ${titleOf(run[0])} … ${titleOf(run[run.length - 1])}`;
        group.children = run;
        result.push(group);
      }
      at += run.length;
    }
    return result;
  };
}

function titleOf(item: Item | undefined): string {
  return item?.kind === 'operation' ? item.name : (item?.title ?? '');
}
