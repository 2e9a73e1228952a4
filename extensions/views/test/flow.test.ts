import { afterEach, describe, expect, it } from 'vitest';
import { mount, type FlowViewState } from '../src/flow';
import {
  cellOf,
  columnOf,
  levelOf,
  limitsOf,
  partialRows,
  readingAt,
  reduce,
  ticksOf,
} from '../src/flow/strip';
import { cellText, summaryOf } from '../src/flow/words';
import { flowOf } from './flow-data';

// jsdom has no canvas; the view draws nothing there and everything else works.
HTMLCanvasElement.prototype.getContext = () => null;

const [NONE, ABSENT, BAD] = [NaN, -1, Infinity];

const EXIT = flowOf({
  body: [1, 2, 4, 8],
  head: [0.5, NONE, 0, BAD],
  late: [ABSENT, ABSENT, 3, 3],
});

describe('cells', () => {
  it('are the columns themselves while there is room', () => {
    const strip = reduce(EXIT, 100);
    expect(strip.cells).toBe(4);
    expect([...strip.norm]).toEqual([1, 2, 4, 8, 0.5, NONE, 0, BAD, NONE, NONE, 3, 3]);
    expect([...strip.missing]).toEqual([0, 0, 0, 0, 0, 1, 0, 0, NONE, NONE, 0, 0]);
    expect(partialRows(strip)).toEqual([1]);
  });

  it('share neighbours where there is none: the largest norm, and the share without one', () => {
    const strip = reduce(EXIT, 2);
    expect(strip.starts).toEqual([0, 2, 4]);
    expect([...strip.norm]).toEqual([2, 8, 0.5, BAD, NONE, 3]);
    expect([...strip.peak]).toEqual([1, 3, 0, 3, 0, 2]);
    expect([...strip.missing]).toEqual([0, 0, 0.5, 0, NONE, 0]);
    expect([0, 1, 2, 3].map((column) => cellOf(strip, column))).toEqual([0, 0, 1, 1]);
  });

  it('keep a spike of one step however many share a cell', () => {
    const values = Array.from({ length: 4096 }, (_, at) => (at === 2345 ? 1e6 : 1));
    const strip = reduce(flowOf({ a: values }), 150);
    expect(strip.cells).toBeLessThanOrEqual(150);
    expect(Math.max(...strip.norm)).toBe(1e6);
    expect(strip.peak[cellOf(strip, 2345)]).toBe(2345);
  });

  it('are coloured by the logarithm; zero and no norm have no colour', () => {
    expect(limitsOf(EXIT)).toEqual([0.5, 8]);
    const norms = [0.5, 2, 8, 0, NONE, BAD];
    expect(norms.map((norm) => levelOf(norm, [0.5, 8]))).toEqual([0, 4, 8, -1, -1, -1]);
    expect(levelOf(3, [3, 3])).toBe(0);
    expect(limitsOf(flowOf({ a: [0, NONE, BAD] }))).toBeNull();
    expect(levelOf(3, null)).toBe(-1);
  });

  it('have round steps below them', () => {
    const strip = reduce(flowOf({ a: Array.from({ length: 64 }, () => 1) }), 100);
    const record = flowOf({ a: Array.from({ length: 64 }, () => 1) });
    expect(ticksOf(record, strip, 8).map(({ step }) => step)).toEqual([1, 10, 20, 30, 40, 50, 60]);
    expect(ticksOf(record, strip, 8)[1]).toEqual({ cell: 9, step: 10 });
    expect(ticksOf(flowOf({}), reduce(flowOf({}), 9), 8)).toEqual([]);
  });
});

describe('what is said', () => {
  it('names each kind of value', () => {
    const kinds = [0, 1, 2, 3].map((column) => readingAt(EXIT, 1, column).kind);
    expect(kinds).toEqual(['norm', 'none', 'norm', 'infinite']);
    const strip = reduce(EXIT, 100);
    expect(cellText(EXIT, strip, 1, 0)).toBe('head, step 1: 0.5');
    expect(cellText(EXIT, strip, 1, 1)).toBe('head, step 2: no gradient');
    expect(cellText(EXIT, strip, 1, 3)).toBe('head, step 4: not finite');
    expect(cellText(EXIT, strip, 2, 0)).toBe('late, step 1: not in the model, or frozen');
    expect(cellText(EXIT, reduce(EXIT, 2), 1, 0)).toBe(
      'head, steps 1 to 2: up to 0.5 at 1; no gradient in 1 of 2',
    );
  });

  it('names the chosen step of a cell that has several', () => {
    const strip = reduce(EXIT, 2);
    expect(cellText(EXIT, strip, 1, 0, 1)).toBe('head, step 2: no gradient');
    expect(cellText(EXIT, strip, 0, 1, 3)).toBe('body, steps 3 to 4: up to 8 at 4');
    expect(cellText(EXIT, strip, 2, 0, 0)).toBe('late, step 1: not in the model, or frozen');
  });

  it('sums a row up', () => {
    expect(summaryOf(EXIT, 1)).toEqual({
      smallest: 0,
      median: 0.25,
      largest: 0.5,
      missing: 1,
      sampled: 4,
      infinite: 1,
    });
    expect(summaryOf(EXIT, 2).sampled).toBe(2);
  });

  it('finds a step, the later column of one that was repeated', () => {
    const record = flowOf({ a: [1, 1, 1, 1] }, [2, 5, 5, 9]);
    expect([2, 5, 9, 1, 6, 10].map((step) => columnOf(record, step))).toEqual([
      0, 2, 3, -1, -1, -1,
    ]);
  });
});

describe('the view', () => {
  let dispose = (): void => undefined;
  let state: FlowViewState = { record: null, error: null };
  let changed = (): void => undefined;
  afterEach(() => {
    dispose();
    document.body.replaceChildren();
  });

  function shown(first: FlowViewState): HTMLElement {
    state = first;
    const host = document.body.appendChild(document.createElement('div'));
    dispose = mount(host, {
      get: () => state,
      subscribe: (listener) => {
        changed = listener;
        return () => (changed = () => undefined);
      },
      send: () => Promise.resolve(),
    });
    return host;
  }
  const update = (next: FlowViewState): void => {
    state = next;
    changed();
  };
  const press = (host: HTMLElement, ...keys: string[]): void => {
    const canvas = host.querySelector('canvas');
    for (const key of keys)
      canvas?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  };
  const reading = (host: HTMLElement): string => host.querySelector('.wv-read')?.textContent ?? '';

  it('is read and left by keyboard alone', () => {
    const host = shown({ record: EXIT, error: null });
    expect(reading(host)).toBe('norm of all parameter gradients of a module, steps 1 to 4');
    press(host, 'ArrowDown');
    expect(reading(host)).toBe('body, step 4: 8');
    press(host, 'ArrowDown', 'ArrowLeft');
    expect(reading(host)).toBe('head, step 3: 0');
    expect(host.querySelector('[aria-live]')?.textContent).toBe('head, step 3: 0');
    press(host, 'Home', '[', ']');
    expect(reading(host)).toBe('head, step 2: no gradient');
    const went: unknown[] = [];
    host.addEventListener('workbench:step', (event) => went.push((event as CustomEvent).detail));
    press(host, 'Enter');
    expect(went).toEqual([
      { step: 2, passing: false, path: 'head', label: 'head', experiment: 'exp-1' },
    ]);
    press(host, 'Escape');
    expect(reading(host)).toContain('steps 1 to 4');
  });

  it('has the same numbers as a table', () => {
    const host = shown({ record: EXIT, error: null });
    press(host, 't');
    const row = (at: number): (string | null)[] =>
      [...(host.querySelectorAll('tbody tr')[at]?.children ?? [])].map((cell) => cell.textContent);
    expect(host.querySelector('canvas')?.hidden).toBe(true);
    expect(row(0)).toEqual(['body', '2', '8', '1', '3', '8', '–', '–']);
    expect(row(1)).toEqual(['head', '2', 'not finite', '0', '0.25', '0.5', '1 of 4 steps', '1']);
    host.querySelector<HTMLElement>('[aria-label="Previous sampled step"]')?.click();
    expect(row(1)[2]).toBe('0');
    expect(host.querySelectorAll('thead th')[2]?.textContent).toBe('At step 3');
  });

  it('explains only the signs that occur', () => {
    const host = shown({ record: EXIT, error: null, captured: [3] });
    const signs = (): (string | null)[] =>
      [...host.querySelectorAll('.wv-key p')].map((one) => one.lastChild?.textContent ?? null);
    expect(signs()).toEqual([
      'no gradient: did not run',
      'a module was left out',
      'gradient is 0',
      'not finite',
      'captured step',
    ]);
    update({ record: flowOf({ a: [1, 2] }), error: null });
    expect(signs()).toEqual([]);
  });

  it('follows the newest step until a person looks at another one', () => {
    const host = shown({ record: flowOf({ a: [1, 2] }), error: null });
    update({ record: flowOf({ a: [1, 2, 3] }), error: null });
    press(host, 'ArrowLeft');
    expect(reading(host)).toBe('a, step 3: 3');
    update({ record: flowOf({ a: [1, 2, 3, 4, 5] }), error: null });
    expect(reading(host)).toBe('a, step 3: 3');
  });

  it('says what is missing or wrong', () => {
    const host = shown({ record: null, error: null });
    expect(host.textContent).toContain('sampled while the experiment trains');
    update({ record: flowOf({}), error: null });
    expect(host.textContent).toContain('Nothing yet');
    update({ record: { ...flowOf({}), notes: ['steps of workers are not'] }, error: null });
    const message = host.querySelector<HTMLElement>('.wv-empty');
    expect(message?.hidden).toBe(true);
    expect(host.querySelector('.wv-notes')?.textContent).toBe('steps of workers are not');
    update({ record: null, error: null, missing: 'It is gone.' });
    expect(message?.textContent).toBe('It is gone.');
    update({ record: { ...EXIT, norm: [1, 2] }, error: null });
    expect(host.querySelector('[role=alert]')?.textContent).toContain(
      '3 modules at 4 steps need 12 norms, got 2',
    );
    update({ record: EXIT, error: 'the file is gone' });
    expect(host.querySelector('[role=alert]')?.textContent).toContain('the file is gone');
  });

  it('shows hostile names as text and leaves nothing behind', () => {
    const name = '<img src=x onerror=alert(1)>\u202e\n' + 'x'.repeat(10_000);
    const host = shown({ record: flowOf({ [name]: [1, 2] }), error: null });
    press(host, 't', 'ArrowLeft');
    expect(host.querySelector('img')).toBeNull();
    expect(host.querySelector('tbody th')?.textContent?.length).toBeLessThanOrEqual(60);
    dispose();
    expect(host.childElementCount).toBe(0);
    dispose = () => undefined;
  });
});
