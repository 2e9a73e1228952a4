import type { MemoryChart } from '@torch-workbench/records';
import { curveOf, type Curve } from '../src/kernel';

/** A small seeded generator: the demo draws the same pictures every time. */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

/** A loss that falls as losses do; `blowUp` lets the last ten steps run away. */
export function lossCurve(steps: number, seed: number, blowUp = false): Curve {
  const noise = random(seed);
  const values = Float32Array.from({ length: steps }, (_, i) => {
    const base = 1.14 + 0.62 * Math.exp(-i / 38) + 0.54 * Math.exp(-i / 210);
    const late = blowUp ? Math.max(0, i - (steps - 9)) : 0;
    return base + 0.18 * (noise() + noise() - 1) + 0.02 * late ** 2.4;
  });
  return curveOf(
    Int32Array.from(values, (_, i) => i + 1),
    values,
  );
}

/** Validation points every fifty steps of a train curve. */
export function valCurve(train: Curve): Curve {
  const steps: number[] = [];
  for (let step = 50; step <= train.length; step += 50) steps.push(step);
  const mean = (end: number): number => {
    const window = [...train.values.subarray(Math.max(0, end - 20), end)];
    return window.reduce((sum, value) => sum + value, 0) / window.length;
  };
  const values = Float32Array.from(steps, (step) => mean(step) + 0.06);
  return curveOf(Int32Array.from(steps), values);
}

/** The accuracy of an epoch so far, and of a validation every fifty steps. */
export function accuracyCurves(steps: number): Map<string, Curve> {
  const noise = random(17);
  const at = (step: number): number => 0.78 - 0.68 * Math.exp(-step / 260);
  const seen = Array.from({ length: Math.ceil(steps / 10) }, (_, i) => 10 * i + 1);
  const validated = Array.from({ length: Math.floor(steps / 50) }, (_, i) => 50 * (i + 1));
  return new Map([
    [
      'train/accuracy',
      curveOf(
        Int32Array.from(seen),
        Float32Array.from(seen, (step) => at(step) + 0.012 * (noise() - 0.5)),
      ),
    ],
    [
      'val/accuracy',
      curveOf(
        Int32Array.from(validated),
        Float32Array.from(validated, (step) => at(step) - 0.02 + 0.02 * (noise() - 0.5)),
      ),
    ],
  ]);
}

const MIB = 2 ** 20;

/** Memory after each sampled step: flat, a leak of a megabyte now and then, more reserved once. */
export function memoryCurves(steps: number, device: 'cuda' | 'cpu'): Map<string, Curve> {
  const of = (value: (i: number) => number): Curve => {
    const values = Float32Array.from({ length: steps }, (_, i) => value(i) * MIB);
    return curveOf(
      Int32Array.from(values, (_, i) => i + 1),
      values,
    );
  };
  const used = (i: number): number => 141 + Math.floor(i / 40);
  const peak = (i: number): number => (i < 3 ? 218 : i < 150 ? 302 : 341);
  if (device === 'cpu') {
    const resident = random(9);
    const wave = (i: number): number => 812 + Math.min(i, 30) * 3 + 14 * resident();
    const both = new Map([['memory/resident', of(wave)]]);
    return both.set(
      'memory/resident_peak',
      of(() => 934),
    );
  }
  return new Map([
    ['memory/allocated', of(used)],
    ['memory/reserved', of((i) => (i < 150 ? 326 : 384))],
    ['memory/fragmentation', of((i) => (i < 150 ? 12 : 31))],
    ['memory/allocated_peak', of(peak)],
  ]);
}
const POINTS = 120;

/** One step's memory: activations grow in forward and melt in backward. */
export function memory(reserved: boolean): MemoryChart {
  const noise = random(3);
  const rows: number[][] = [[], [], [], [], [], [], []];
  for (let i = 0; i < POINTS; i += 1) {
    const t = i / POINTS;
    const forward = Math.min(1, t / 0.34);
    const back = t < 0.34 ? 0 : Math.min(1, (t - 0.34) / 0.44);
    const optimizer = t > 0.82 ? 1 : 0;
    const saved = 172 * forward * (1 - back);
    const used = 3 + 10 * noise() + (Math.abs(t - 0.35) < 0.012 ? 14 : 0);
    const update = optimizer ? 52 * Math.sin(Math.PI * Math.min(1, (t - 0.82) / 0.16)) ** 2 : 0;
    const gradients = t < 0.35 || t > 0.97 ? 0 : 33;
    const values = [34, 68, 6, gradients, saved, used + update, 7];
    for (const [row, value] of values.entries()) rows[row]?.push(value * MIB);
  }
  const total = rows[0]?.map((_, i) => rows.reduce((sum, row) => sum + (row[i] ?? 0), 0)) ?? [];
  const peak = total.indexOf(Math.max(...total));
  const at = (fraction: number): number => Math.round(fraction * POINTS);
  return {
    schema: 'workbench.memory_chart/1',
    step: 412,
    device: reserved ? 'cuda:0' : 'cpu',
    basis: 'Rounded block bytes of the caching allocator; invented for this page.',
    num_points: POINTS,
    bytes: Float32Array.from(rows.flat()),
    phases: [
      { name: 'forward', start: 0, end: at(0.34) },
      { name: 'backward', start: at(0.34), end: at(0.82) },
      { name: 'optimizer', start: at(0.82), end: POINTS },
    ],
    peak_point: peak,
    peak_bytes: total[peak] ?? 0,
    peak_label: 'backward of head',
    at_peak: rows.map((row) => row[peak] ?? 0),
    reserved_bytes: reserved ? 384 * MIB : -1,
  };
}
