import type { Curve } from '../kernel';

const RANK = 'parallel/rank 0 memory_mib';
/** Samples shown: the last minute of a fast training, more of a slow one. */
export const MOST_SAMPLES = 600;

/** The newest samples of a training's memory, in bytes; every column as long as `steps`. */
export interface LiveMemory {
  /**
   * `allocator`: torch's counters of the device. `card`: those of the allocator that is simulated
   * for a GPU. `process`: resident memory, where there is neither. `rank`: what the first rank
   * holds, where ranks compute the steps.
   */
  readonly of: 'allocator' | 'card' | 'process' | 'rank';
  readonly steps: Int32Array;
  readonly used: Float32Array;
  readonly reserved: Float32Array | null;
  readonly fragmentation: Float32Array | null;
  /** The highest there was. */
  readonly peak: number;
  /** Whether the peak is kept at all times, or it is the highest of the samples. */
  readonly peakIsKept: boolean;
}

/**
 * What the curves say of memory, on a simulated GPU (`played`) or not; null before the first
 * sample.
 */
export function liveMemory(curves: ReadonlyMap<string, Curve>, played = false): LiveMemory | null {
  const allocated = curves.get('memory/allocated');
  const resident = curves.get('memory/resident');
  const ofRank = curves.get(RANK);
  // several are there where a run went to ranks or to a simulated GPU and came back from them: the
  // newest one counts
  if (ofRank && lastStep(ofRank) > Math.max(lastStep(allocated), lastStep(resident))) {
    return newest('rank', curves, inBytes(ofRank));
  }
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
    const curve = of === 'process' || of === 'rank' ? undefined : curves.get(name);
    const fits = curve !== undefined && curve.length === used.length;
    return fits ? curve.values.subarray(start, used.length) : null;
  };
  const kept =
    of === 'rank'
      ? undefined
      : curves.get(of === 'process' ? 'memory/resident_peak' : 'memory/allocated_peak');
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

/** Its newest samples, which ranks report in MiB. */
function inBytes({ steps, values, smooth, length }: Curve): Curve {
  const start = Math.max(0, length - MOST_SAMPLES);
  const newest = values.slice(start, length).map((value) => value * 2 ** 20);
  return {
    steps: steps.subarray(start, length),
    values: newest,
    smooth: smooth.subarray(start, length),
    length: newest.length,
  };
}

function lastStep(curve: Curve | undefined): number {
  return curve?.length ? (curve.steps[curve.length - 1] as number) : -1;
}

/** Not only the last one: other code may have reset the allocator's peak meanwhile. */
function highest({ values, length }: Curve): number {
  let most = 0;
  for (let i = 0; i < length; i += 1) most = Math.max(most, values[i] as number);
  return most;
}
