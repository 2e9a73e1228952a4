import type { Curve } from '../kernel';

/** Samples shown: the last minute of a fast training, more of a slow one. */
export const MOST_SAMPLES = 600;

/** The newest samples of a training's memory, in bytes; every column as long as `steps`. */
export interface LiveMemory {
  /**
   * `allocator`: torch's counters of the device. `card`: those of the allocator that is simulated
   * for a card. `process`: resident memory, where there is neither.
   */
  readonly of: 'allocator' | 'card' | 'process';
  readonly steps: Int32Array;
  readonly used: Float32Array;
  readonly reserved: Float32Array | null;
  readonly fragmentation: Float32Array | null;
  /** The highest there was. */
  readonly peak: number;
  /** Whether somebody keeps the peak at all times, or it is the highest of the samples. */
  readonly peakIsKept: boolean;
}

/** What the curves say of memory, on a `played` card or not; null before the first sample. */
export function liveMemory(curves: ReadonlyMap<string, Curve>, played = false): LiveMemory | null {
  const allocated = curves.get('memory/allocated');
  const resident = curves.get('memory/resident');
  // both are there where a run went to a simulated card or came back from one: the newer one counts
  if (lastStep(allocated) >= lastStep(resident)) {
    return newest(played ? 'card' : 'allocator', curves, allocated);
  }
  return newest('process', curves, resident);
}

function newest(
  of: LiveMemory['of'],
  curves: ReadonlyMap<string, Curve>,
  used: Curve | undefined,
): LiveMemory | null {
  if (!used?.length) return null;
  const start = Math.max(0, used.length - MOST_SAMPLES);
  const column = (name: string): Float32Array | null => {
    const curve = of === 'process' ? undefined : curves.get(name);
    const fits = curve !== undefined && curve.length === used.length;
    return fits ? curve.values.subarray(start, used.length) : null;
  };
  const kept = curves.get(of === 'process' ? 'memory/resident_peak' : 'memory/allocated_peak');
  const peakIsKept = (kept?.length ?? 0) > 0;
  const values = peakIsKept && kept ? kept : used;
  return {
    of,
    steps: used.steps.subarray(start, used.length),
    used: used.values.subarray(start, used.length),
    reserved: column('memory/reserved'),
    fragmentation: column('memory/fragmentation'),
    peak: highest(values),
    peakIsKept,
  };
}

function lastStep(curve: Curve | undefined): number {
  return curve?.length ? (curve.steps[curve.length - 1] as number) : -1;
}

/** Not only the last one: somebody may have reset the allocator's peak meanwhile. */
function highest({ values, length }: Curve): number {
  let most = 0;
  for (let i = 0; i < length; i += 1) most = Math.max(most, values[i] as number);
  return most;
}
