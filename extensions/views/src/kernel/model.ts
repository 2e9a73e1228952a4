import type { ExperimentState, MemoryChart } from '@torch-workbench/records';

export const PROTOCOL = 2;

/** What to show a person whose page and kernel do not speak the same. */
export function mismatch(found: unknown): string {
  return `the kernel speaks protocol ${String(found)}, this page ${PROTOCOL}: reload the page, or upgrade torch-workbench and restart the kernel`;
}

/** What the kernel runs on. */
export interface KernelFacts {
  readonly device: string;
  readonly cores: number;
  readonly memory_bytes: number;
  readonly python: string;
  readonly torch: string;
}

/** A metric over steps; each array has `length` entries that count. */
export interface Curve {
  readonly steps: Int32Array;
  readonly values: Float32Array;
  /** The moving average, of all values: of those too that are not held any more. */
  readonly smooth: Float32Array;
  readonly length: number;
}

/** All that is known of one experiment. */
export interface ExperimentModel {
  readonly state: ExperimentState;
  readonly curves: ReadonlyMap<string, Curve>;
  readonly chart: MemoryChart | null;
}

/**
 * `connecting`: no answer yet. `live`: messages arrive. `lost`: the channel closed and is being
 * reopened. `dead`: the kernel was restarted or refused; only a person can go on.
 */
export type Connection = 'connecting' | 'live' | 'lost' | 'dead';

/** What the panel and the side panel are drawn from. */
export interface KernelModel {
  readonly connection: Connection;
  /** Why the connection is not live, one sentence; empty when it is. */
  readonly detail: string;
  readonly kernel: KernelFacts | null;
  /** In the order in which they were created. */
  readonly experiments: ReadonlyMap<string, ExperimentModel>;
  /** Ids of those that the kernel has released: closed, or no longer referenced. */
  readonly gone: ReadonlySet<string>;
}

/** Names and arguments of every command; `workbench/panel/channel/commands.py` is its other end. */
export interface CommandArgs {
  run: { epochs?: number };
  set_epochs: { epochs: number };
  pause: Record<string, never>;
  resume: Record<string, never>;
  step: { count: number };
  stop: Record<string, never>;
  set_modes: { modes: string };
  set_mode: { mode: string; value: string };
  set_learning_rate: { value: number };
  remove_scheduler: Record<string, never>;
  capture: { what: 'graph' | 'memory' | 'both' };
  compare: { a: string; b: string };
  fetch: { capture: string };
  export: { capture: string; format: string };
  ask: { capture: string; question: object };
  flow: { known: number };
  apply_remedy: { index: number };
  resume_from: { path: string };
  load_weights: { path: string; which: 'last' | 'best' };
  swap_in: Record<string, never>;
  resume_from_failure: { modes?: string; learning_rate?: number };
  probe_modes: Record<string, never>;
  snapshot: Record<string, never>;
}

/** One request to the kernel. */
export type Command = {
  [Name in keyof CommandArgs]: {
    readonly name: Name;
    readonly experiment: string;
    readonly args: CommandArgs[Name];
  };
}[keyof CommandArgs];

/** Columns of a gradient flow, and how many samples come before them. */
export interface FlowPiece {
  readonly bytes: ArrayBuffer;
  readonly known: number;
}

export const EMPTY_MODEL: KernelModel = {
  connection: 'connecting',
  detail: '',
  kernel: null,
  experiments: new Map(),
  gone: new Set(),
};
