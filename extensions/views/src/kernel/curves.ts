import { average, NO_AVERAGE, type Average } from './average';
import type { Buffer, ChannelData } from './channel';
import type { Curve } from './model';
import { isOfMemory, thin } from './thin';

/** A browser that stays open for days must not grow without end: beyond this, keep half. */
const MAX_POINTS = 40_000;
/** Buffers of each name: steps, values, and the moving average of what is thinned out. */
const BUFFERS = 3;

interface Growing extends Curve {
  /** How many points the kernel had when it sent the last one; more than `length` when thinned. */
  readonly total: number;
  readonly average: Average;
}

/**
 * Applies one `curves` message and returns the new map, or null when it does not fit what is held
 * (a message was lost: request a snapshot).
 */
export function applyCurves(
  held: ReadonlyMap<string, Curve>,
  message: ChannelData,
  buffers: readonly Buffer[],
): ReadonlyMap<string, Curve> | null {
  const names = message['names'] as string[];
  const from = message['from'] as number[];
  const total = message['total'] as number[];
  const weight = message['weight'] as number[];
  const next = new Map<string, Curve>(message['reset'] === true ? [] : held);
  for (const [i, name] of names.entries()) {
    const before = next.get(name) as Growing | undefined;
    if ((before?.total ?? 0) !== (from[i] ?? 0)) return null;
    const steps = toInt32(buffers[BUFFERS * i]);
    const values = toFloat32(buffers[BUFFERS * i + 1]);
    const smooth = toFloat32(buffers[BUFFERS * i + 2]);
    if (!steps || !values || !smooth || steps.length !== values.length) return null;
    if (smooth.length > 0 && smooth.length !== values.length) return null;
    const curve = append(before, steps, values);
    const reached =
      smooth.length > 0
        ? sent(smooth, weight[i] ?? 0, curve)
        : average(before?.average ?? NO_AVERAGE, curve, before?.length ?? 0);
    const kept = curve.length > MAX_POINTS ? halved(name, curve) : curve;
    const grown: Growing = { ...kept, total: total[i] ?? 0, average: reached };
    next.set(name, grown);
  }
  return next;
}

/** A curve of these points. */
export function curveOf(steps: Int32Array, values: Float32Array, length = steps.length): Curve {
  const curve = { steps, values, smooth: new Float32Array(values.length), length };
  average(NO_AVERAGE, curve, 0);
  return curve;
}

/** Takes the average that came with a whole curve, whose newest value says where it stands. */
function sent(smooth: Float32Array, weight: number, curve: Curve): Average {
  curve.smooth.set(smooth);
  return weight > 0 ? { sum: (smooth.at(-1) as number) * weight, weight } : NO_AVERAGE;
}

/** Appends in place where there is room: capacity doubles, so a point costs O(1) on average. */
function append(before: Curve | undefined, steps: Int32Array, values: Float32Array): Curve {
  const length = before?.length ?? 0;
  const needed = length + steps.length;
  const capacity = Math.max(256, 2 ** Math.ceil(Math.log2(needed)));
  const fits = before !== undefined && needed <= before.steps.length;
  const grown = <T extends Int32Array | Float32Array>(from: T | undefined, make: () => T): T =>
    from && fits ? from : copyInto(make(), from, length);
  const curve = {
    steps: grown(before?.steps, () => new Int32Array(capacity)),
    values: grown(before?.values, () => new Float32Array(capacity)),
    smooth: grown(before?.smooth, () => new Float32Array(capacity)),
    length: needed,
  };
  curve.steps.set(steps, length);
  curve.values.set(values, length);
  return curve;
}

function copyInto<T extends Int32Array | Float32Array>(
  into: T,
  from: T | undefined,
  length: number,
): T {
  if (from) into.set(from.subarray(0, length));
  return into;
}

/** Half as many points: the newest, or those that a person looks for. */
function halved(name: string, curve: Curve): Curve {
  const half = MAX_POINTS / 2;
  if (!isOfMemory(name)) return thin(curve, half);
  const newest = <T extends Int32Array | Float32Array>(from: T): T =>
    from.slice(curve.length - half, curve.length) as T;
  const { steps, values, smooth } = curve;
  return { steps: newest(steps), values: newest(values), smooth: newest(smooth), length: half };
}

function toInt32(buffer: Buffer | undefined): Int32Array | null {
  return buffer ? new Int32Array(aligned(buffer)) : null;
}

function toFloat32(buffer: Buffer | undefined): Float32Array | null {
  return buffer ? new Float32Array(aligned(buffer)) : null;
}

/** The bytes in a buffer of their own: a part of a websocket message may start anywhere. */
export function aligned(buffer: Buffer): ArrayBuffer {
  if (!ArrayBuffer.isView(buffer)) return buffer;
  const { byteOffset, byteLength } = buffer;
  return (buffer.buffer as ArrayBuffer).slice(byteOffset, byteOffset + byteLength);
}
