/**
 * The graph view: what autograd recorded for one loss, as boxes of modules that open and close.
 * `view.ts` wires the parts together; each part is a file of its own.
 */
import type { Dispose, Store } from '../store';
import type { GraphColumns } from './columns';
import { CAPTURE } from './capture-face';
import type { GraphState } from './state';
import type { StepColours } from './step-colours';
import { GraphView } from './view';

/** What the view shows; `error` is one sentence, shown beside what still works. */
export interface GraphViewState {
  readonly record: GraphColumns | null;
  readonly error: string | null;
  /** Gradient norms of another step, to colour by; null or left out: those of the capture. */
  readonly colours?: StepColours | null;
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
  const view = open(el, store, options);
  return () => view.dispose();
}

/** The same for a host that needs more of the view: a picture of it (`picture.ts`). */
export function open(
  el: HTMLElement,
  store: Store<GraphViewState, never>,
  options: GraphViewOptions = {},
): GraphView<GraphState> {
  const view = new GraphView(store, options, CAPTURE);
  el.append(view.element);
  view.start();
  return view;
}
