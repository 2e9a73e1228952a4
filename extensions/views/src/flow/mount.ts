/** The gradient-flow strip, mounted: what it is given, and what it requests. */
import type { Dispose, Store } from '../store';
import type { FlowColumns } from './strip';
import { FlowView } from './view';

/** What the view shows; `error` is one sentence. */
export interface FlowViewState {
  readonly record: FlowColumns | null;
  readonly error: string | null;
  /** Why there is nothing and will be nothing; left out where it may come. */
  readonly missing?: string;
  /** Steps of which there is a capture: they are outlined. */
  readonly captured?: readonly number[];
  /** The step that the view beside this strip shows; left out where there is none. */
  readonly shown?: number | null;
}

export interface FlowViewOptions {
  /** Stands below another view: only as high as its rows, and its title opens and closes it. */
  foot?: { readonly open: boolean; readonly onToggle: (open: boolean) => void };
}

/** Detail of the bubbling `workbench:step` event: a person wants to see this step. */
export interface StepDetail {
  /** Null: the one that is captured, as before any was chosen. */
  readonly step: number | null;
  /** Chosen in passing, by an arrow key or under a drag, rather than by Enter or a click. */
  readonly passing: boolean;
  /** Path and label of the row. */
  readonly path: string;
  readonly label: string;
  readonly experiment: string | null;
}

/** Mounts the strip into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<FlowViewState, never>,
  options: FlowViewOptions = {},
): Dispose {
  const view = new FlowView(store, options);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
