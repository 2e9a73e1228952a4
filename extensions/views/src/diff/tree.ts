/** The tree of modules beside a diff: bytes saved, B − A, and the sign of what changed. */
import { h } from '../graph/dom';
import type { Item } from '../graph/groups';
import type { TreeFace } from '../graph/tree-panel';
import { SIGNS } from './change';
import type { DiffState } from './state';
import { signedBytes } from './words';

export const TREE: TreeFace<DiffState> = {
  heading: 'saved, B − A',
  figures,
  foot: (state) => [
    state.onlyChanges
      ? 'What did not change is folded into boxes.'
      : 'Unchanged modules start collapsed.',
    'Operations match by module path, call and line.',
  ],
};

function figures(item: Item, state: DiffState): HTMLElement[] {
  const { a, b } = state.index.saved(item);
  const what = state.index.state(item);
  const bytes = h('span', 'bytes', a === b ? '' : signedBytes(b - a));
  const sign = what === 'same' ? '' : SIGNS[what];
  return [bytes, h('i', { class: `sign ${what}`, title: what, 'aria-label': what }, sign)];
}
