/** Fetches the record named in the address and mounts a view on it; the title tells how long it took. */
import type { Dispose, Store } from '../src/store';

interface State<R> {
  record: R | null;
  error: string | null;
}

export async function open<R>(
  read: (bytes: ArrayBuffer) => R,
  mount: (el: HTMLElement, store: Store<State<R>, never>) => Dispose,
): Promise<void> {
  const host = document.querySelector<HTMLElement>('#host');
  if (!host) return;
  const query = new URLSearchParams(location.search);
  const url = query.get('record');
  const bytes = url ? await (await fetch(url)).arrayBuffer() : null;
  const start = performance.now();
  const state: State<R> = { record: bytes && read(bytes), error: query.get('error') };
  mount(host, { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() });
  document.title = `${(performance.now() - start).toFixed(0)} ms`;
}
