/**
 * The graph view: what autograd recorded for one loss, as boxes of modules that open and close.
 * `view.ts` wires the parts together; each part is a file of its own.
 */
import type { Dispose, Store } from '../store';
import type { GraphColumns } from './columns';
import { CAPTURE } from './capture-face';
import { GraphView } from './view';

/** What the view shows; `error` is one sentence, shown beside what still works. */
export interface GraphViewState {
  readonly record: GraphColumns | null;
  readonly error: string | null;
}

export interface GraphViewOptions {
  /** More visible nodes than this and the smallest modules start collapsed. */
  visibleLimit?: number;
  slots?: Slots;
}

/** Elements of the host's own that stand in the view: it knows of captures, kernels and files. */
export interface Slots {
  /** At the left end of the toolbar. */
  lead?: readonly HTMLElement[];
  /** At its right end. */
  tail?: readonly HTMLElement[];
  /** Below drawing and panels, over the whole width. */
  foot?: HTMLElement;
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<GraphViewState, never>,
  options: GraphViewOptions = {},
): Dispose {
  const view = new GraphView(store, options, CAPTURE);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
