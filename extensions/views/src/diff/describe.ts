/** What a screen reader says about an item of a diff. */
import { formatBytes, plural, shorten } from '../graph/format';
import { size, type Item } from '../graph/groups';
import { nameOf } from '../graph/tree-panel';
import type { DiffState } from './state';
import { detailOf, STATES } from './words';

export function describe(state: DiffState, item: Item): string {
  const { a, b } = state.index.saved(item);
  const bytes = a === b ? formatBytes(a) : `${formatBytes(a)} in A and ${formatBytes(b)} in B`;
  const where = state.path(item).slice(1).map(nameOf).join(', ');
  const what = STATES[state.index.state(item)];
  const parts =
    item.kind === 'operation'
      ? [item.op, what, detailOf(state.index.of(item.id))]
      : [item.title, what, plural(size(item), 'operation'), state.chips(item)[0]];
  parts.push(`${bytes} saved`, where && `in ${where}`);
  return shorten(parts.filter(Boolean).join(', '), 300);
}
