/** Puts the diff of two memory records on a page. */
import type { Slots } from '../graph/mount';
import type { MemoryColumns } from '../memory/series';
import type { Dispose, Store } from '../store';
import { MemoryDiffView } from './view';

/** What the view shows; `error` is one sentence. */
export interface MemoryDiffState {
  readonly a: MemoryColumns | null;
  readonly b: MemoryColumns | null;
  readonly error: string | null;
  /** What the host knows A and B by, in place of their titles: names of files. */
  readonly names?: readonly [string, string];
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(
  el: HTMLElement,
  store: Store<MemoryDiffState, never>,
  { slots = {} }: { slots?: Slots } = {},
): Dispose {
  const view = new MemoryDiffView(store, slots);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
