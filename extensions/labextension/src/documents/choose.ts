import type { TranslationBundle } from '@jupyterlab/translation';
import { PromiseDelegate } from '@lumino/coreutils';
import type { PacedStore } from '../connection/paced';

export type CaptureKind = 'graph' | 'memory';

/** A step may be a long one, and compile before it runs. */
const PATIENCE_MS = 120_000;

/** Id of the newest capture of this kind that the kernel holds. */
export function newestCapture(
  store: PacedStore,
  experiment: string,
  kind: CaptureKind,
): string | null {
  const captures = store.get().experiments.get(experiment)?.state.captures ?? [];
  const ofKind = captures.filter((one) => one.kind === kind);
  return ofKind.reduce((a, b) => (b.created_at > a.created_at ? b : a), ofKind[0])?.id ?? null;
}

/**
 * Captures the next step and resolves with the capture's id. An idle experiment runs one step.
 * Rejects with one sentence when the kernel refuses or no step comes.
 */
export async function captureNext(
  store: PacedStore,
  experiment: string,
  kind: CaptureKind,
  trans: TranslationBundle,
): Promise<string> {
  const before = newestCapture(store, experiment, kind);
  const arrived = new PromiseDelegate<string>();
  const stop = store.subscribe(() => {
    const newest = newestCapture(store, experiment, kind);
    if (newest !== null && newest !== before) {
      arrived.resolve(newest);
    }
  });
  const late = window.setTimeout(() => {
    const seconds = PATIENCE_MS / 1000;
    arrived.reject(
      new Error(trans.__('No step finished within %1 s, so there is no capture.', seconds)),
    );
  }, PATIENCE_MS);
  try {
    await store.send({ name: 'capture', experiment, args: { what: kind } });
    return await arrived.promise;
  } finally {
    stop();
    window.clearTimeout(late);
  }
}
