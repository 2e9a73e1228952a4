import type { TranslationBundle } from '@jupyterlab/translation';
import { PromiseDelegate } from '@lumino/coreutils';
import type { CaptureInfo, CaptureKind } from '@torch-workbench/records';
import type { Command } from '@torch-workbench/views';
import type { PacedStore } from '../connection/paced';

/** A step may be a long one, and compile before it runs. */
const PATIENCE_MS = 120_000;

/** Captures of this kind that the kernel holds, newest first. */
export function capturesOf(
  store: PacedStore,
  experiment: string,
  kind: CaptureKind,
): readonly CaptureInfo[] {
  const captures = store.get().experiments.get(experiment)?.state.captures ?? [];
  return captures.filter((one) => one.kind === kind).sort((a, b) => b.created_at - a.created_at);
}

/**
 * Captures the next step and resolves with the capture's id. An idle experiment runs one step.
 * Rejects with one sentence when the kernel refuses or no step comes.
 */
export function captureNext(
  store: PacedStore,
  experiment: string,
  kind: 'graph' | 'memory',
  trans: TranslationBundle,
): Promise<string> {
  const command = { name: 'capture', experiment, args: { what: kind } } as const;
  const seconds = PATIENCE_MS / 1000;
  const late = trans.__('No step finished within %1 s, so there is no capture.', seconds);
  return arrival(store, kind, command, late);
}

/**
 * Compares two graphs, the older first, the two newest unless they are given; resolves with the id
 * of the diff. Rejects with one sentence when there are fewer than two or the kernel refuses.
 */
export async function compareGraphs(
  store: PacedStore,
  experiment: string,
  given: readonly [string, string] | undefined,
  trans: TranslationBundle,
): Promise<string> {
  const [newest, older] = capturesOf(store, experiment, 'graph');
  if (given === undefined && (newest === undefined || older === undefined)) {
    throw new Error(
      trans.__('Two graphs are needed to compare them: capture the graph of another step first.'),
    );
  }
  const [a, b] = given ?? [older?.id ?? '', newest?.id ?? ''];
  const command = { name: 'compare', experiment, args: { a, b } } as const;
  const seconds = PATIENCE_MS / 1000;
  const late = trans.__('The kernel sent no comparison within %1 s.', seconds);
  return arrival(store, 'diff', command, late);
}

/** Sends a command that makes a capture; resolves with its id once the kernel holds it. */
async function arrival(
  store: PacedStore,
  kind: CaptureKind,
  command: Command,
  late: string,
): Promise<string> {
  const newest = (): string | undefined => capturesOf(store, command.experiment, kind)[0]?.id;
  const before = newest();
  const arrived = new PromiseDelegate<string>();
  const stop = store.subscribe(() => {
    const now = newest();
    if (now !== undefined && now !== before) {
      arrived.resolve(now);
    }
  });
  const timer = window.setTimeout(() => arrived.reject(new Error(late)), PATIENCE_MS);
  try {
    await store.send(command);
    return await arrived.promise;
  } finally {
    stop();
    window.clearTimeout(timer);
  }
}
