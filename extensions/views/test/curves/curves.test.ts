import { describe, expect, it } from 'vitest';
import { lossChart, memoryChart, Sparkline } from '../../src/curves';
import { placeMarkers } from '../../src/curves/markers';
import { linePath } from '../../src/curves/path';
import { linear, ticks, tickLabel } from '../../src/curves/scale';
import { valueRange } from '../../src/curves/range';
import { curveOf, type Curve } from '../../src/kernel';
import { CHART } from '../panel/mounted';

function curve(values: number[], capacity = values.length): Curve {
  const held = new Float32Array(capacity).fill(777);
  held.set(values);
  return curveOf(
    Int32Array.from(held, (_, i) => i + 1),
    held,
    values.length,
  );
}

const unit = linear(0, 100, 0, 100);

describe('scales', () => {
  it('makes round ticks inside the range, labelled as precisely as they need', () => {
    expect(ticks(0, 450, 4)).toEqual([0, 200, 400]);
    expect(ticks(1, 2.5, 3)).toEqual([1, 1.5, 2, 2.5]);
    expect(ticks(-0.3, 0.3, 3)).toEqual([-0.2, 0, 0.2]);
    expect(tickLabel(1.5, 0.5)).toBe('1.5');
    expect(tickLabel(-0.2, 0.2)).toBe('−0.2');
    expect(tickLabel(200, 200)).toBe('200');
    expect(tickLabel(2.5e9, 5e8)).toBe('2.5e9');
    expect([2e11, 4e11, 6e11].map((one) => tickLabel(one, 2e11))).toEqual(['2e11', '4e11', '6e11']);
    expect([7.5e4, 1e5].map((one) => tickLabel(one, 2.5e4))).toEqual(['7.5e4', '1.00e5']);
    expect(tickLabel(0, 5e8)).toBe('0');
    expect(tickLabel(2000, 1000)).toBe('2,000');
    expect(tickLabel(-1500.5, 0.5)).toBe('−1,500.5');
    expect(tickLabel(20_000, 5000)).toBe('2.0e4');
  });

  it('survives an empty or endless range', () => {
    expect(ticks(1, 1, 4)).toEqual([1]);
    expect(ticks(0, Infinity, 4)).toEqual([0]);
  });
});

describe('the smoothed line', () => {
  it('starts at the first value and passes over what is not finite', () => {
    expect(curve([2, 2, 2]).smooth).toEqual(Float32Array.of(2, 2, 2));
    const line = curve([NaN, 4, Infinity, 4]).smooth;
    expect(line[0]).toBeNaN();
    expect([...line.subarray(1)].map((value) => value.toFixed(4))).toEqual([
      '4.0000',
      '4.0000',
      '4.0000',
    ]);
  });

  it('reads only the points that count, not the room behind them', () => {
    expect(curve([1, 1], 64).smooth.subarray(0, 3)).toEqual(Float32Array.of(1, 1, 0));
  });

  it('is within the range, as every validation does; of the raw line the worst are left out', () => {
    const noisy = curve(Array.from({ length: 5_000 }, (_, i) => (i === 2_345 ? 1e6 : 1 + (i % 2))));
    const range = valueRange(noisy, [curve([3, NaN, -4])]);
    expect(range?.low).toBe(-4);
    expect(range?.high).toBe(Math.max(...noisy.smooth));
    expect(valueRange(curve([NaN]), [undefined])).toBeNull();
  });
});

describe('a path', () => {
  it('draws a million points as a few per pixel and loses no spike', () => {
    const length = 1_000_000;
    const values = new Float32Array(length).fill(1);
    values[500_001] = 99;
    const steps = Int32Array.from(values, (_, i) => i);
    const path = linePath(steps, values, length, linear(0, length, 0, 100), unit);
    expect(path.split(/[ML]/).length).toBeLessThan(450);
    expect(path).toContain(' 99.0');
  });

  it('breaks at values that are not finite', () => {
    const { steps, values, length } = curve([1, NaN, 3]);
    expect(linePath(steps, values, length, unit, unit)).toBe('M1.0 1.0M3.0 3.0');
  });
});

describe('markers', () => {
  const space = {
    left: 0,
    right: 400,
    x: (step: number) => step,
    measure: (t: string) => t.length * 5,
  };

  it('keeps the newest label and drops one that would touch it, never its tooltip', () => {
    const placed = placeMarkers(
      [
        { step: 100, text: 'attention math' },
        { step: 110, text: 'lr 1e-3' },
        { step: 120, text: 'compile blocks + bf16' },
      ],
      space,
    );
    expect(placed.at(-1)).toMatchObject({ newest: true, label: { text: 'compile blocks + bf16' } });
    expect(placed.filter((marker) => marker.label).length).toBeLessThan(3);
    expect(placed[1]?.title).toBe('step 110: lr 1e-3');
  });

  it('keeps the lines of older markers out of a label over them', () => {
    const markers = [
      { step: 340, text: 'bf16' },
      { step: 380, text: 'compile blocks + bf16' },
    ];
    const placed = placeMarkers(markers, space);
    expect(placed[1]?.label?.anchor).toBe('end');
    expect(placed.map((marker) => marker.covered)).toEqual([true, false]);
  });

  it('turns to the left at the right edge and shortens what has no room', () => {
    const [marker] = placeMarkers([{ step: 395, text: 'bf16' }], space);
    expect(marker?.label).toMatchObject({ text: 'bf16', anchor: 'end' });
    const [long] = placeMarkers([{ step: 10, text: 'y'.repeat(10_000) }], space);
    expect(long?.label?.text.length).toBeLessThan(40);
    expect(long?.title.length).toBeLessThan(420);
  });

  it('cuts nothing off to a few letters: the tooltip has it whole', () => {
    const markers = [
      { step: 28, text: 'lr 1e-2' },
      { step: 34, text: 'compile blocks + bf16' },
    ];
    const placed = placeMarkers(markers, space);
    expect(placed.map((one) => one.label?.text ?? '')).toEqual(['', 'compile blocks + bf16']);
    expect(placed[0]?.title).toBe('step 28: lr 1e-2');
  });
});

describe('the charts', () => {
  it('draw a ring for each validation, and a line once they would run into each other', () => {
    const chart = lossChart('cross entropy', 164);
    document.body.append(chart.el);
    const drawn = (validations: number): [number, boolean] => {
      const both = curve(Array.from({ length: validations }, (_, i) => 2 / (i + 1)));
      const data = { markers: [], totalSteps: 0, live: false, nanFrom: null };
      chart.update({ ...data, train: both, val: both });
      const line = chart.el.querySelector('.val-line')?.getAttribute('d') ?? '';
      return [chart.el.querySelectorAll('svg.plot .rings circle').length, line !== ''];
    };
    expect(drawn(4)).toEqual([4, false]);
    expect(drawn(400)).toEqual([1, true]);
    expect(drawn(3)).toEqual([3, false]);
    chart.dispose();
  });

  it('draw the first step as a point: a line needs two', () => {
    const chart = lossChart('cross entropy', 164);
    document.body.append(chart.el);
    const data = { markers: [], totalSteps: 30, live: false, nanFrom: null, val: undefined };
    const dots = (): string[] =>
      [...chart.el.querySelectorAll('svg.plot circle.live-halo, svg.plot circle.live-dot')]
        .filter((one) => !one.hasAttribute('hidden'))
        .map((one) => one.getAttribute('class') ?? '');
    chart.update({ ...data, train: curve([2]) });
    expect(dots()).toEqual(['live-dot']);
    chart.update({ ...data, train: curve([2, 1]) });
    expect(dots()).toEqual([]);
    chart.update({ ...data, train: curve([2, 1]), live: true });
    expect(dots()).toEqual(['live-halo', 'live-dot']);
    chart.dispose();
    chart.el.remove();
  });

  it('describe the loss in words, and as a table on demand', () => {
    const chart = lossChart('cross entropy', 164);
    document.body.append(chart.el);
    const data = { markers: [], totalSteps: 30, live: true, nanFrom: null };
    chart.update({ ...data, train: curve([2, 1.5, 1.25]), val: curve([1.75]) });
    expect(chart.el.getAttribute('aria-label')).toMatch(
      /^Loss \(cross entropy\) up to step 3: train average 1\.\d\d, last step 1\.25, validation 1\.75$/,
    );
    const newest = chart.el.querySelector<HTMLElement>('.wb-key');
    expect(newest?.textContent).toMatch(/^train avg ?1\.\d\d$/);
    expect(newest?.title).toBe('The average of the last steps; the last one alone: 1.25');
    expect(chart.el.querySelector('h3')?.title).toBe('Loss: cross entropy');
    expect(chart.el.querySelector('table')?.rows).toHaveLength(0);
    chart.el.querySelector<HTMLButtonElement>('.wb-table-button')?.click();
    const rows = [...(chart.el.querySelector('tbody')?.rows ?? [])];
    expect(rows.map((row) => row.textContent)).toEqual(['12.001.75', '21.50', '31.25']);
    chart.dispose();
    chart.el.remove();
  });

  it('read a single step with the arrow keys', () => {
    const chart = lossChart('cross entropy', 164);
    const data = { markers: [], totalSteps: 30, live: true, nanFrom: null, val: undefined };
    chart.update({ ...data, train: curve([2, 1.5, 1.25]) });
    const key = (name: string): boolean =>
      chart.el.dispatchEvent(new KeyboardEvent('keydown', { key: name, cancelable: true }));
    key('ArrowLeft');
    expect(chart.el.querySelector('.wb-reading')?.textContent).toBe('step 2');
    expect(chart.el.querySelector('.wb-key b')?.textContent).toBe('1.50');
    key('Escape');
    expect(chart.el.querySelector('.wb-reading')?.textContent).toBe('cross entropy');
  });

  it('describe the peak in words and list the categories in drawing order', () => {
    const chart = memoryChart(164);
    document.body.append(chart.el);
    chart.update({ ...CHART, reserved_bytes: 10 * 2 ** 20 });
    expect(chart.el.getAttribute('aria-label')).toContain('peak 7 MiB in forward of head');
    const legend = [...chart.el.querySelectorAll('.wb-legend li')].map((row) => row.textContent);
    expect(legend).toEqual([
      'at the peakMiB',
      'free3',
      'unknown1',
      'temporaries1',
      'activations1',
      'gradients1',
      'buffers + inputs1',
      'optimizer1',
      'parameters1',
    ]);
    const areas = [...chart.el.querySelectorAll('.area')].map((a) =>
      a.getAttribute('data-category'),
    );
    expect(areas).toEqual([...areas].sort((a, b) => order(a) - order(b)));
    expect(areas[0]).toBe('parameters');
    chart.dispose();
    chart.el.remove();
  });
});

function order(name: string | null): number {
  const stack = ['parameters', 'optimizer', 'buffers', 'gradients', 'activations', 'temporaries'];
  return name === 'unknown' ? 99 : stack.indexOf(name ?? '');
}

describe('a sparkline', () => {
  function rightEnd(totalSteps: number): number {
    const spark = new Sparkline();
    const steps = Int32Array.from([1, 50, 100]);
    spark.draw(curveOf(steps, Float32Array.from([3, 2, 1])), totalSteps, true);
    return Number(spark.svg.querySelector('circle')?.getAttribute('cx'));
  }

  it('leaves room for the steps to come, but never becomes a bar', () => {
    expect(rightEnd(100)).toBe(72);
    expect(rightEnd(200)).toBe(37);
    expect(rightEnd(69_000)).toBe(25.3);
  });
});
