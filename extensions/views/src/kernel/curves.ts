import type { Buffer, ChannelData } from './channel';
import type { Curve } from './model';

/** A browser that stays open for days must not grow without end: beyond this, halve. */
const MAX_POINTS = 40_000;

interface Growing extends Curve {
  /** How many points the kernel had when it sent the last one; more than `length` when strided. */
  readonly total: number;
}

/**
 * Applies one `curves` message and returns the new map, or null when it does not fit what is held
 * (a message was lost: ask for a snapshot).
 */
export function applyCurves(
  held: ReadonlyMap<string, Curve>,
  message: ChannelData,
  buffers: readonly Buffer[],
): ReadonlyMap<string, Curve> | null {
  const names = message['names'] as string[];
  const from = message['from'] as number[];
  const total = message['total'] as number[];
  const next = new Map<string, Curve>(message['reset'] === true ? [] : held);
  for (const [i, name] of names.entries()) {
    const before = next.get(name) as Growing | undefined;
    if ((before?.total ?? 0) !== (from[i] ?? 0)) return null;
    const steps = toInt32(buffers[2 * i]);
    const values = toFloat32(buffers[2 * i + 1]);
    if (!steps || !values || steps.length !== values.length) return null;
    next.set(name, append(before, steps, values, total[i] ?? 0));
  }
  return next;
}

/** Appends in place where there is room: capacity doubles, so a point costs O(1) on average. */
function append(
  before: Growing | undefined,
  steps: Int32Array,
  values: Float32Array,
  total: number,
): Growing {
  const length = before?.length ?? 0;
  const needed = length + steps.length;
  let grown = before?.steps ?? new Int32Array(0);
  let values_ = before?.values ?? new Float32Array(0);
  if (needed > grown.length) {
    const capacity = Math.max(256, 2 ** Math.ceil(Math.log2(needed)));
    grown = copyInto(new Int32Array(capacity), grown, length);
    values_ = copyInto(new Float32Array(capacity), values_, length);
  }
  grown.set(steps, length);
  values_.set(values, length);
  const curve = { steps: grown, values: values_, length: needed, total };
  return needed > MAX_POINTS ? halved(curve) : curve;
}

function copyInto<T extends Int32Array | Float32Array>(into: T, from: T, length: number): T {
  into.set(from.subarray(0, length));
  return into;
}

/** Every second point, the last one kept. */
function halved(curve: Growing): Growing {
  const length = Math.ceil(curve.length / 2);
  const steps = new Int32Array(curve.steps.length);
  const values = new Float32Array(curve.values.length);
  const shift = (curve.length - 1) % 2;
  for (let i = 0; i < length; i += 1) {
    const at = Math.min(2 * i + shift, curve.length - 1);
    steps[i] = curve.steps[at] as number;
    values[i] = curve.values[at] as number;
  }
  return { steps, values, length, total: curve.total };
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
