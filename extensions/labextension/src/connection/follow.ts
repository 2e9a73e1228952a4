import type { IWorkbenchConnections } from '../tokens';
import type { PacedStore } from './paced';

/** Calls `listener` whenever something of the active notebook changed, whichever notebook it is. */
export function follow(connections: IWorkbenchConnections, listener: () => void): void {
  let store: PacedStore | null = null;
  let stop: (() => void) | null = null;

  function rebind(): void {
    const next = connections.current?.store ?? null;
    if (next !== store) {
      stop?.();
      store = next;
      stop = next?.subscribe(listener) ?? null;
    }
    listener();
  }

  connections.currentChanged.connect(rebind);
  connections.changed.connect(rebind);
  rebind();
}
