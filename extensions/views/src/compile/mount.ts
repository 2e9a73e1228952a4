/** Puts a compile report on a page. */
import type { CompileRecord } from '@torch-workbench/records';
import type { Dispose, Store } from '../store';
import { CompileView } from './view';

/** What the view shows; `error` is one sentence. */
export interface CompileViewState {
  readonly record: CompileRecord | null;
  readonly error: string | null;
  /**
   * Gives the source of a kernel, a row of `record.kernels`, where the record was sent without the
   * code. Rejects with one sentence.
   */
  readonly source?: (kernel: number) => Promise<string>;
}

/** Mounts the view into `el`; the returned function takes it out again. */
export function mount(el: HTMLElement, store: Store<CompileViewState, never>): Dispose {
  const view = new CompileView(store);
  el.append(view.element);
  view.start();
  return () => view.dispose();
}
