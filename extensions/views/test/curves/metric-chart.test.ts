import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { accuracyChart, lossChart, StepView, type MetricData } from '../../src/curves';
import { enclosing, enclosingLog } from '../../src/curves/scale';
import { between, lastUntil, nearest } from '../../src/curves/window';
import { curveOf, type Curve } from '../../src/kernel';

/** Width that a page without layout gives a plot, less its margins, at 10 pixels a step. */
const WIDTH = 384;
const LEFT = 34;
const RIGHT = 8;

function curve(values: number[], steps = values.map((_, i) => i + 1)): Curve {
  return curveOf(Int32Array.from(steps), Float32Array.from(values));
}

function data(train: Curve, val?: Curve): MetricData {
  return { train, val, markers: [], totalSteps: 100, live: false, nanFrom: null };
}

const hundred = curve(Array.from({ length: 100 }, (_, i) => 2 - i / 100));
const validated = curve([1.9, 1.5], [50, 100]);
let view: StepView;
let chart: ReturnType<typeof lossChart>;

beforeEach(() => {
  view = new StepView();
  chart = lossChart('cross entropy', 164, view);
  document.body.append(chart.el);
  chart.update(data(hundred, validated));
});

afterEach(() => {
  chart.dispose();
  chart.el.remove();
});

const plot = (el = chart.el): SVGSVGElement => el.querySelector('svg.plot') as SVGSVGElement;
const pixel = (step: number): number => LEFT + ((WIDTH - LEFT - RIGHT) * step) / 100;

/** The page of these tests knows no pointers: a mouse event with what they would say. */
function pointer(type: string, step: number, more: { button?: number; kind?: string } = {}): void {
  const { button: pressed = 0, kind = 'mouse' } = more;
  const event = new MouseEvent(type, { clientX: pixel(step), button: pressed, bubbles: true });
  plot().setPointerCapture ??= () => undefined;
  plot().dispatchEvent(Object.assign(event, { pointerType: kind, pointerId: 1 }));
}

function drag(from: number, to: number, more: { button?: number; kind?: string } = {}): void {
  pointer('pointerdown', from, more);
  pointer('pointermove', to, more);
  pointer('pointerup', to, more);
}

const figures = (el = chart.el): (string | null)[] =>
  [...el.querySelectorAll('.wb-key b')].map((one) => one.textContent);
const reading = (el = chart.el): string | null | undefined =>
  el.querySelector('.wb-reading')?.textContent;
const button = (name: string): HTMLButtonElement =>
  [...chart.el.querySelectorAll('button')].find((one) => one.textContent === name) as never;
const yLabels = (): (string | null)[] =>
  [...plot().querySelectorAll('text[text-anchor=end]')].map((one) => one.textContent);
const stepLabels = (): (string | null)[] =>
  [...plot().querySelectorAll('text:not([x="28"])')]
    .map((one) => one.textContent)
    .filter((text) => text !== 'step');

describe('reading a chart', () => {
  it('says what that step had, and the last validation before it', () => {
    pointer('pointermove', 60);
    expect(reading()).toBe('step 60');
    expect(figures()).toEqual(['1.41', '1.90']);
    const said = chart.el.querySelectorAll('.wb-key')[1]?.getAttribute('title');
    expect(said).toBe('Validated at step 50');
    pointer('pointermove', 20);
    expect(figures()).toEqual(['1.81', 'none yet']);
    pointer('pointerleave', 20);
    expect(reading()).toBe('cross entropy');
    expect(figures()[1]).toBe('1.50');
  });

  it('reads the accuracy of the same step beside it', () => {
    const beside = accuracyChart(164, view);
    const accuracy = curve([0.1, 0.5, 0.9], [1, 50, 100]);
    beside.update(data({ ...accuracy, smooth: accuracy.values }, curve([0.25], [50])));
    expect(figures(beside.el)).toEqual(['90.0 %', '25.0 %']);
    pointer('pointermove', 52);
    expect(reading(beside.el)).toBe('step 50');
    expect(figures(beside.el)).toEqual(['50.0 %', '25.0 %']);
    expect(beside.el.textContent).not.toContain('log');
    beside.dispose();
    expect(() => view.point(3)).not.toThrow();
  });
});

describe('zooming', () => {
  it('shows what was dragged across, in every chart of the view, until a double click', () => {
    drag(80, 40);
    expect(view.range).toEqual([40, 80]);
    expect(stepLabels()).toEqual(['40', '50', '60', '70']);
    expect(plot().querySelector('.raw')?.getAttribute('d')).toMatch(/^M25.4 /); // step 39
    expect(plot().querySelectorAll('.rings circle:not([hidden])').length).toBeGreaterThan(0);
    plot().dispatchEvent(new MouseEvent('dblclick'));
    expect(view.range).toBeNull();
    expect(stepLabels()[0]).toBe('0');
  });

  it('has a button to see all again, while there is something to see', () => {
    expect(button('All').hidden).toBe(true);
    drag(10, 30);
    expect(button('All').hidden).toBe(false);
    button('All').click();
    expect(view.range).toBeNull();
    expect(button('All').hidden).toBe(true);
  });

  it('takes no click, no other button and no finger for a drag', () => {
    drag(50, 50.5);
    drag(20, 60, { button: 2 });
    drag(20, 60, { kind: 'touch' });
    pointer('pointerdown', 20);
    pointer('pointercancel', 60);
    pointer('pointerup', 60);
    expect(view.range).toBeNull();
  });

  it('goes by keys around the step that is read', () => {
    const key = (name: string): boolean =>
      !chart.el.dispatchEvent(new KeyboardEvent('keydown', { key: name, cancelable: true }));
    view.point(40);
    expect(key('+')).toBe(true);
    expect(view.range).toEqual([20, 70]);
    expect(key('-')).toBe(true);
    expect(key('-')).toBe(true);
    expect(view.range).toBeNull();
    key('+');
    key('Escape');
    expect([view.pointed, view.range]).toEqual([null, [20, 70]]);
    key('Escape');
    expect(view.range).toBeNull();
    expect(key('b')).toBe(false);
    for (let i = 0; i < 40; i += 1) key('+');
    expect(view.range?.[1]).toBe(100);
    expect((view.range?.[1] ?? 0) - (view.range?.[0] ?? 0)).toBeGreaterThanOrEqual(1);
  });
});

describe('the logarithmic axis', () => {
  it('is of the loss, has ticks that enclose it, and leaves out what is not above zero', () => {
    chart.update(data(curve([100, 10, 0, 1, -3, 0.02])));
    button('log').click();
    expect(button('log').getAttribute('aria-pressed')).toBe('true');
    expect(yLabels().slice(0, -1)).toEqual(['0.01', '0.1', '1', '10', '100']);
    const raw = plot().querySelector('.raw')?.getAttribute('d') ?? '';
    expect(raw).not.toContain('NaN');
    expect(raw.split('M')).toHaveLength(4); // three pieces, with a gap at each of the two
    button('log').click();
    expect(yLabels()).toContain('0');
  });

  it('draws a loss that is nowhere above zero as nothing at all', () => {
    button('log').click();
    chart.update(data(curve([-1, 0, -2]), curve([0], [2])));
    expect(plot().querySelector('.raw')?.getAttribute('d')).toBe('');
    expect(yLabels().every((label) => label !== 'NaN')).toBe(true);
  });

  it('has ticks between one and seven at every span', () => {
    for (const [low, high] of [
      [1e-12, 1e12],
      [0.3, 0.31],
      [0.02, 0.9],
      [1, 1],
      [3e-7, 5e-7],
    ] as const) {
      const found = enclosingLog(low, high);
      expect(found.length).toBeGreaterThan(1);
      expect(found.length).toBeLessThanOrEqual(9);
      expect(found[0]).toBeLessThanOrEqual(low * (1 + 1e-6));
      expect(found.at(-1)).toBeGreaterThanOrEqual(high * (1 - 1e-6));
      expect(found).toEqual([...found].sort((a, b) => a - b));
    }
    expect(enclosing(1, 1).length).toBeGreaterThan(1);
  });
});

describe('points by step', () => {
  it('are the nearest, the last until, and those between with one more on each side', () => {
    const some = curve([1, 2, 3, 4], [10, 20, 30, 40]);
    expect([0, 14, 16, 99].map((step) => nearest(some, step))).toEqual([0, 0, 1, 3]);
    expect([9, 10, 29, 99].map((step) => lastUntil(some, step))).toEqual([-1, 0, 1, 3]);
    expect([...between(some, 15, 25).steps]).toEqual([10, 20, 30]);
    expect([...between(some, 50, 60).steps]).toEqual([40]);
    expect(nearest(curve([]), 3)).toBe(-1);
  });
});
