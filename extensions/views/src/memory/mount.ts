/** Puts the memory view on a page. */
import type { Slots } from '../graph/mount';
import type { Dispose, Store } from '../store';
import type { MemoryColumns } from './series';
import type { Parts } from './part';
import { MemoryView } from './view';

/** What the view shows; `error` is one sentence. */
export interface MemoryViewState {
  readonly record: MemoryColumns | null;
  readonly error: string | null;
  /**
   * Queries the holder of the record (`workbench/memory/simulation/questions.py`); absent where
   * there is none.
   */
  readonly ask?: (question: object) => Promise<object>;
  /** Shows a module in the graph of the same experiment; absent where there can be none. */
  readonly openModule?: (path: string) => void;
}

export interface MemoryViewOptions extends Parts {
  readonly slots?: Slots;
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<MemoryViewState, never>,
  { slots = {}, ...parts }: MemoryViewOptions,
): Dispose {
  const view = new MemoryView(store, slots, parts);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
