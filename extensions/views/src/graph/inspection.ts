/** What a page of a capture's inspector needs: the state, and what its buttons do. */
import type { Group, Item } from './groups';
import type { HighlightKind } from './highlight';
import type { GraphState } from './state';

export interface Inspection {
  state: GraphState;
  select: (item: Item) => void;
  toggle: (group: Group) => void;
  light: (kind: HighlightKind, item: Item) => void;
}
