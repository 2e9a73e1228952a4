import { describe, expect, it } from 'vitest';
import { curveOf, thin } from '../../src/kernel';
import { applyCurves } from '../../src/kernel/curves';
import type { Curve } from '../../src/kernel';

/** One message with one curve, as `workbench/panel/channel/curves.py` sends it. */
function message(
  held: ReadonlyMap<string, Curve>,
  name: string,
  from: number,
  values: number[],
  more: { reset?: boolean; smooth?: number[]; weight?: number; total?: number } = {},
): ReadonlyMap<string, Curve> | null {
  const { reset = false, smooth = [], weight = 0, total = from + values.length } = more;
  const steps = Int32Array.from(values, (_, i) => from + i + 1);
  const columns = [steps, Float32Array.from(values), Float32Array.from(smooth)];
  return applyCurves(
    held,
    {
      type: 'curves',
      seq: 1,
      names: [name],
      from: [from],
      total: [total],
      weight: [weight],
      reset,
    },
    columns.map((column) => column.buffer),
  );
}

const of = (map: ReadonlyMap<string, Curve> | null, name: string): Curve => {
  const curve = map?.get(name);
  if (!curve) throw new Error(`no ${name}`);
  return curve;
};

/** Ones with a spike in every fiftieth place, as a loss that now and then jumps for one step. */
function spiky(count: number): number[] {
  return Array.from({ length: count }, (_, i) => (i % 50 === 49 ? 9 : 1));
}

const spikes = ({ values, length }: Curve): number =>
  values.subarray(0, length).filter((value) => value === 9).length;

describe('a curve that is thinned out', () => {
  it('keeps every spike of one step, and what is not finite', () => {
    const values = Float32Array.from(spiky(20_000));
    values[7_777] = NaN;
    values[12_345] = -Infinity;
    const steps = Int32Array.from(values, (_, i) => i + 1);
    const thinned = thin(curveOf(steps, values), 2_000);
    expect(thinned.length).toBeLessThanOrEqual(2_000);
    expect(spikes(thinned)).toBe(400);
    const kept = [...thinned.steps].map((step, i) => [step, thinned.values[i]]);
    expect(kept).toContainEqual([7_778, NaN]);
    expect(kept).toContainEqual([12_346, -Infinity]);
    expect([thinned.steps[0], thinned.steps.at(-1)]).toEqual([1, 20_000]);
    expect([...thinned.steps]).toEqual([...new Set(thinned.steps)].sort((a, b) => a - b));
  });

  it('shows the average of all values, and not of those that it kept', () => {
    const values = Float32Array.from({ length: 30_000 }, (_, i) => (i % 1_000 === 999 ? 50 : 1));
    const whole = curveOf(
      Int32Array.from(values, (_, i) => i),
      values,
    );
    const thinned = thin(whole, 1_000);
    for (const [i, step] of [...thinned.steps].entries()) {
      expect(thinned.smooth[i]).toBe(whole.smooth[step]);
    }
  });

  it('is as it is where it is short', () => {
    const short = curveOf(Int32Array.of(1, 2), Float32Array.of(1, 2));
    expect(thin(short, 2)).toBe(short);
  });
});

describe('messages of curves', () => {
  it('go on with the average that came with a curve sent thinned out', () => {
    const sent = message(new Map(), 'train/loss', 0, [1, 1], {
      reset: true,
      smooth: [1, 1.5],
      weight: 1,
      total: 9_000,
    });
    const later = message(sent ?? new Map(), 'train/loss', 9_000, [2]);
    expect([...of(later, 'train/loss').smooth.subarray(0, 3)].map((v) => v.toFixed(4))).toEqual([
      '1.0000',
      '1.5000',
      (1.5 + (2 - 1.5) * 0.12).toFixed(4),
    ]);
  });

  it('go on with the average where they hold every value', () => {
    let held = message(new Map(), 'train/loss', 0, [4, NaN, 4], { reset: true });
    held = message(held ?? new Map(), 'train/loss', 3, [1, 7]);
    const { smooth, values, steps } = curveOf(
      Int32Array.of(1, 2, 3, 4, 5),
      Float32Array.of(4, NaN, 4, 1, 7),
    );
    const found = of(held, 'train/loss');
    expect(found.smooth.subarray(0, 5)).toEqual(smooth);
    expect(found.values.subarray(0, 5)).toEqual(values);
    expect(found.steps.subarray(0, 5)).toEqual(steps);
  });

  it('lose no spike and no average where a page stays open for days', () => {
    let held: ReadonlyMap<string, Curve> = new Map();
    const all = spiky(100_000);
    for (let from = 0; from < all.length; from += 5_000) {
      const next = message(held, 'train/loss', from, all.slice(from, from + 5_000), {
        reset: from === 0,
      });
      if (!next) throw new Error('a message that fits was refused');
      held = next;
    }
    const curve = of(held, 'train/loss');
    expect(curve.length).toBeLessThanOrEqual(40_000);
    expect(spikes(curve)).toBe(2_000);
    const whole = curveOf(new Int32Array(all.length), Float32Array.from(all));
    expect(curve.smooth[curve.length - 1]).toBe(whole.smooth[all.length - 1]);
  });

  it('keep the newest of memory, in columns of equal length', () => {
    let held: ReadonlyMap<string, Curve> = new Map();
    for (let from = 0; from < 45_000; from += 15_000) {
      for (const name of ['memory/allocated', 'memory/reserved']) {
        const values = Array.from({ length: 15_000 }, (_, i) => from + i);
        held = message(held, name, from, values) ?? new Map();
      }
    }
    const [used, reserved] = ['memory/allocated', 'memory/reserved'].map((name) => of(held, name));
    expect(used?.length).toBe(20_000);
    expect(reserved?.length).toBe(20_000);
    expect(used?.steps).toEqual(reserved?.steps);
    expect(used?.steps[0]).toBe(25_001);
  });

  it('are refused where one was lost, or does not fit', () => {
    const held = message(new Map(), 'train/loss', 0, [1], { reset: true }) ?? new Map();
    expect(message(held, 'train/loss', 5, [1])).toBeNull();
    expect(message(new Map(), 'train/loss', 0, [1, 2], { smooth: [1], weight: 1 })).toBeNull();
  });
});
