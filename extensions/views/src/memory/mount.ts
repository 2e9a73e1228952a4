/** Puts the memory view on a page. */
import type { Slots } from '../graph/mount';
import type { Dispose, Store } from '../store';
import type { MemoryColumns } from './series';
import { MemoryView } from './view';

/** What the view shows; `error` is one sentence. */
export interface MemoryViewState {
  readonly record: MemoryColumns | null;
  readonly error: string | null;
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<MemoryViewState, never>,
  { slots = {} }: { slots?: Slots } = {},
): Dispose {
  const view = new MemoryView(store, slots);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
