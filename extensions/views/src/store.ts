/** What every view is mounted on: a value, a way to hear of changes, and a way to request one. */
export interface Store<S, C> {
  /** The latest state; a new object whenever something changed. */
  get(): S;
  /** Calls `listener` after every change; returns what ends the subscription. */
  subscribe(listener: () => void): () => void;
  /** Resolves when the command was carried out; rejects with one clear sentence. */
  send(command: C): Promise<void>;
}

/** Ends a mounted view: removes its listeners, observers and elements. */
export type Dispose = () => void;
