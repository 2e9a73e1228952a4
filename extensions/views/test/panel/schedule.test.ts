import type { ScheduleState } from '@torch-workbench/records';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Mounted } from './mounted';

let panel: Mounted;

beforeEach(() => void vi.useFakeTimers());

afterEach(() => {
  panel.dispose();
  expect(document.body.childElementCount).toBe(0);
  vi.useRealTimers();
});

const SCALED =
  'A rate set here holds from the next step on and scales the rest of the schedule with it.';

/** Warm-up and decay over 30 steps, a point a step. */
function schedule(change: Partial<ScheduleState> = {}): ScheduleState {
  const low = Array.from({ length: 30 }, (_, i) => (i < 10 ? i + 1 : (30 - i) / 2) * 1e-3);
  return {
    name: 'OneCycleLR',
    every: 'step',
    effect: SCALED,
    start: 0,
    end: 30,
    size: 1,
    low,
    high: low,
    is_whole: true,
    why: '',
    ...change,
  };
}

function row(): HTMLElement {
  return panel.find('[role=group][aria-label="Learning-rate schedule"]');
}

/** Numbers of a path, two a point. */
function points(selector: string): [number, number][] {
  const numbers =
    panel
      .find(selector)
      .getAttribute('d')
      ?.match(/-?[\d.]+/g) ?? [];
  return numbers.map(Number).reduce<[number, number][]>((all, value, i, { [i + 1]: next }) => {
    if (i % 2 === 0) all.push([value, next ?? NaN]);
    return all;
  }, []);
}

describe('the schedule', () => {
  it('is not mentioned without one, and comes and goes', async () => {
    panel = await Mounted.panel();
    expect(panel.host.querySelector('.wb-schedule:not([hidden])')).toBeNull();
    await panel.say({ schedule: schedule() });
    expect(row().hidden).toBe(false);
    await panel.say({ schedule: null });
    expect(row().hidden).toBe(true);
  });

  it('says its name, what it counts, and what a rate that is typed does', async () => {
    panel = await Mounted.panel({ schedule: schedule() });
    expect(row().textContent).toContain('OneCycleLR, every step');
    expect(row().textContent).toContain(SCALED);
    await panel.say({ schedule: schedule({ name: 'StepLR', every: 'epoch' }) });
    expect(row().textContent).toContain('StepLR, every epoch');
  });

  it('describes the field by that sentence, for who hears the page', async () => {
    panel = await Mounted.panel({ schedule: schedule() });
    const id = panel.find('.wb-rate').getAttribute('aria-describedby') ?? '';
    expect(document.getElementById(id)?.textContent).toBe(SCALED);
    await panel.say({ schedule: null });
    expect(panel.find('.wb-rate').getAttribute('aria-describedby')).toBeNull();
  });

  it('draws the rates to come, and where the run is', async () => {
    panel = await Mounted.panel({ schedule: schedule(), status: 'training', step: 12, epoch: 2 });
    const line = points('.wb-schedule path.line');
    const [first, last] = [line[0] ?? [0, 0], line.at(-1) ?? [0, 0]];
    expect(first[0]).toBeLessThan(3);
    expect(last[0]).toBeGreaterThan(150);
    const highest = Math.min(...line.map(([, y]) => y));
    expect(line.find(([, y]) => y === highest)?.[0]).toBeCloseTo(2 + (9 / 30) * 156, 0);
    const dot = panel.find('.wb-schedule circle');
    expect(Number(dot.getAttribute('cx'))).toBeCloseTo(2 + (12 / 30) * 156, 1);
    expect(panel.find('.wb-schedule svg').getAttribute('aria-label')).toBe(
      'Learning rate by step: 1.0e-3 after step 0, highest 1.0e-2 after step 9, 5.0e-4 for step 30',
    );
    expect(row().textContent).toContain('highest 1.0e-2');
    expect(row().textContent).toContain('last 5.0e-4');
  });

  it('draws as a band what is too short for a point', async () => {
    const low = Array<number>(10).fill(1e-3);
    const high = Array<number>(10).fill(5e-3);
    panel = await Mounted.panel({ schedule: schedule({ low, high, size: 100, end: 1000 }) });
    const band = points('.wb-schedule path.band');
    expect(new Set(band.map(([, y]) => y)).size).toBe(2);
    await panel.say({ schedule: schedule() });
    expect(panel.find('.wb-schedule path.band').getAttribute('d')).toBe('');
  });

  it('counts epochs, and is between two of them in the middle of one', async () => {
    const low = [0.5, 0.25, 0.125];
    const epochs = schedule({ every: 'epoch', end: 3, low, high: low });
    panel = await Mounted.panel({ schedule: epochs, status: 'training', step: 15, epoch: 2 });
    const dot = panel.find('.wb-schedule circle');
    expect(Number(dot.getAttribute('cx'))).toBeCloseTo(2 + (1.5 / 3) * 156, 1);
    expect(panel.find('.wb-schedule svg').getAttribute('aria-label')).toBe(
      'Learning rate by epoch: 5.0e-1 after epoch 0, highest 5.0e-1 after epoch 0, 1.3e-1 for epoch 3',
    );
  });

  it('says why there is no curve', async () => {
    const none = schedule({ why: 'by metric', low: [], high: [], start: 0, end: 0 });
    panel = await Mounted.panel({ schedule: none });
    expect(row().textContent).toContain('by metric');
    expect(panel.find('.wb-schedule svg').hasAttribute('hidden')).toBe(true);
    await panel.say({ schedule: schedule() });
    expect(row().textContent).not.toContain('by metric');
    expect(panel.find('.wb-schedule svg').hasAttribute('hidden')).toBe(false);
  });

  it('says that it is being computed, and how a curve ends early', async () => {
    const part = schedule().low.slice(0, 5);
    panel = await Mounted.panel({ schedule: schedule({ low: part, high: part, is_whole: false }) });
    expect(row().textContent).toContain('highest so far 5.0e-3computing');
    const why = 'raises IndexError: list index out of range at 5';
    await panel.say({ schedule: schedule({ low: part, high: part, why }) });
    expect(row().textContent).toContain(why);
    expect(row().textContent).not.toContain('last');
  });

  it('survives a curve that is all one rate, or all 0', async () => {
    for (const rate of [1e-3, 0]) {
      const low = Array<number>(30).fill(rate);
      panel = await Mounted.panel({ schedule: schedule({ low, high: low }) });
      expect(panel.find('.wb-schedule path.line').getAttribute('d')).not.toMatch(/NaN|Infinity/);
      if (rate > 0) panel.dispose();
    }
  });

  it('is replaced by a constant with one press, which says what stays', async () => {
    panel = await Mounted.panel({ schedule: schedule(), learning_rate: 0.012 });
    const button = panel.button('Replace by a constant');
    expect(button.title).toBe('Keep the learning rate at 1.2e-2 from the next step on');
    button.click();
    expect(panel.lastCommand).toEqual(['remove_scheduler', {}]);
  });

  it('sends nothing while the kernel cannot receive', async () => {
    panel = await Mounted.panel({ schedule: schedule() });
    panel.kernel.hangUp('the kernel was restarted', true);
    await panel.settle();
    const button = panel.button('Replace by a constant');
    expect(button.getAttribute('aria-disabled')).toBe('true');
    button.click();
    expect(panel.kernel.commands()).not.toContain('remove_scheduler');
  });

  it('keeps its elements while steps are done', async () => {
    panel = await Mounted.panel({ schedule: schedule(), status: 'training', step: 1 });
    panel.button('Replace by a constant').focus();
    const before = [...row().querySelectorAll('*')];
    await panel.say({ schedule: schedule(), status: 'training', step: 2 });
    expect([...row().querySelectorAll('*')]).toEqual(before);
    expect(document.activeElement).toBe(panel.button('Replace by a constant'));
  });
});
