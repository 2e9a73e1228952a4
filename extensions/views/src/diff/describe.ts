/** What a screen reader says about an item of a diff. */
import { formatBytes, plural, shorten } from '../graph/format';
import type { Item } from '../graph/groups';
import { nameOf } from '../graph/tree-panel';
import type { DiffState } from './state';
import { detailOf } from './words';

const STATES = { same: 'the same in both', removed: 'removed', added: 'added', changed: 'changed' };

export function describe(state: DiffState, item: Item): string {
  const { a, b } = state.index.saved(item);
  const bytes = a === b ? formatBytes(a) : `${formatBytes(a)} in A and ${formatBytes(b)} in B`;
  const where = state.path(item).slice(1).map(nameOf).join(', ');
  const what = STATES[state.index.state(item)];
  const parts =
    item.kind === 'operation'
      ? [item.op, what, detailOf(state.index.of(item.id))]
      : [item.title, what, plural(item.end - item.start, 'operation'), counts(state, item)];
  parts.push(`${bytes} saved`, where && `in ${where}`);
  return shorten(parts.filter(Boolean).join(', '), 300);
}

function counts(state: DiffState, item: Item): string {
  return (['removed', 'added', 'changed'] as const)
    .map((kind) => ({ kind, count: state.index.count(item, kind) }))
    .filter(({ count }) => count > 0)
    .map(({ kind, count }) => `${count} ${kind}`)
    .join(', ');
}
