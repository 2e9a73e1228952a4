/**
 * The diff view: the union of two captures in one drawing, with what became of every node from A
 * to B. It is the graph view with another face (`face.ts`).
 */
import type { GraphViewOptions } from '../graph/mount';
import { GraphView } from '../graph/view';
import type { Dispose, Store } from '../store';
import type { DiffColumns } from './columns';
import { DIFF } from './face';
import type { DiffState } from './state';

/** What the view shows; `error` is one sentence, shown beside what still works. */
export interface DiffViewState {
  readonly record: DiffColumns | null;
  readonly error: string | null;
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<DiffViewState, never>,
  options: GraphViewOptions = {},
): Dispose {
  const view = open(el, store, options);
  return () => view.dispose();
}

/** The same for a host that needs more of the view: a picture of it (`graph/picture.ts`). */
export function open(
  el: HTMLElement,
  store: Store<DiffViewState, never>,
  options: GraphViewOptions = {},
): GraphView<DiffState> {
  const view = new GraphView(store, options, DIFF);
  el.append(view.element);
  view.start();
  return view;
}
