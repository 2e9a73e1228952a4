/**
 * What a view of a graph shows of it. The view itself (toolbar, drawing, panels, search, keyboard)
 * is one for all; its face says what a capture, or a diff of two, puts into each of its places.
 */
import type { GraphColumns } from './columns';
import type { Drawing } from './drawing';
import type { Item } from './groups';
import type { StepColours } from './step-colours';
import type { Columns } from './table';
import type { Palette } from './theme';
import type { TreeFace } from './tree-panel';
import type { GraphView } from './view';

/** Controls of a face's own. */
export interface Controls<S> {
  /** In the toolbar, before the search. */
  bar: readonly HTMLElement[];
  /** Between the toolbar and the drawing. */
  below: readonly HTMLElement[];
  /** Over the drawing. */
  over: readonly HTMLElement[];
  update: (state: S | null) => void;
}

export interface Face<S extends Drawing> {
  /** Classes of the view, which the stylesheet's rules are limited to. */
  readonly classes: string;
  readonly style: string;
  /** What a screen reader calls the drawing. */
  readonly label: string;
  /** What to do while there is no record, in one sentence. */
  readonly empty: string;
  /** The key that leads to the first value that is not finite; empty for none. */
  readonly badKey: string;
  readonly tree: TreeFace<S>;
  /** A state for a record; `before` is the state of the record shown until now. */
  open(record: GraphColumns, limit: number | undefined, before: S | null): S;
  controls(view: GraphView<S>): Controls<S>;
  inspect(view: GraphView<S>, state: S): Node[];
  legend(element: HTMLDetailsElement, state: S, palette: Palette): void;
  columns(state: S): Columns;
  /** Takes the gradient norms of another step, or gives them up. */
  colour?(state: S, colours: StepColours | null): void;
  /** What a screen reader says of an item. */
  describe(state: S, item: Item): string;
  /** Carries out a key of its own; whether it was one. */
  key(view: GraphView<S>, key: string): boolean;
}
