/** Puts a comparison of modes on a page. */
import type { CompareRecord } from '@torch-workbench/records';
import type { Dispose, Store } from '../store';
import { CompareView } from './view';

/** What the view shows; `error` is one sentence. */
export interface CompareViewState {
  readonly record: CompareRecord | null;
  readonly error: string | null;
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(el: HTMLElement, store: Store<CompareViewState, never>): Dispose {
  const view = new CompareView(store);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
