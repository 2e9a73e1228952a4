import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { COMPARE_RECORD, readRecordAs, type CompareRecord } from '@torch-workbench/records';
import { afterEach, expect, it } from 'vitest';
import { mount, type CompareViewState } from '../src/compare';
import { sorted } from '../src/compare/columns';
import { axisOf } from '../src/compare/interval';
import { duration, factor, paysBack, power, speed } from '../src/compare/words';

/** What `tests/unit/records/support.py: compare_record` holds. */
const FILE = join(import.meta.dirname, '../../records/test/fixtures/compare.safetensors');
const RECORD = readRecordAs(COMPARE_RECORD, new Uint8Array(readFileSync(FILE)));
const ARM = RECORD.arms[0];
if (!ARM) throw new Error('the fixture has no variant');
const BASE = {
  ...ARM,
  model: 'net',
  modes: 'fp32',
  verdict: 'baseline' as const,
  problem: '',
  step_s: 0.01,
  speedup: 1,
  notes: [],
};
const FASTER = {
  ...BASE,
  modes: 'compile',
  verdict: 'faster' as const,
  step_s: 0.005,
  speedup: 2,
  speedup_low: 1.8,
  speedup_high: 2.2,
  break_even: 780,
  agreement: 0.999,
};
const SLOWER = {
  ...BASE,
  modes: 'bf16',
  verdict: 'slower' as const,
  step_s: 0.02,
  speedup: 0.5,
  speedup_low: 0.4,
  speedup_high: 0.625,
};
const REFUSED = {
  ...BASE,
  modes: 'attention:cudnn',
  verdict: '' as const,
  problem: 'attention cudnn does not exist on cpu',
  step_s: NaN,
  speedup: NaN,
  speedup_low: NaN,
  speedup_high: NaN,
};
const ARMS = [BASE, SLOWER, REFUSED, FASTER];
const COMPARED: CompareRecord = {
  ...RECORD,
  title: 'net',
  rounds: 3,
  cancelled: true,
  arms: ARMS,
  block_arm: Int32Array.from([0, 1, 3, 0, 1, 3]),
  block_round: Int32Array.from([0, 0, 0, 1, 1, 1]),
  block_steps: Int32Array.from([9, 9, 9, 9, 9, 9]),
  block_seconds: Float64Array.from([0.01, 0.02, 0.005, 0.011, 0.021, 0.006]),
  loss_arm: Int32Array.from([0, 0, 3, 3]),
  loss_step: Int32Array.from([1, 2, 1, 2]),
  loss_value: Float64Array.from([2.3, 2.2, 2.3, NaN]),
};

let dispose: (() => void) | null = null;
afterEach(() => {
  dispose?.();
  dispose = null;
  document.body.replaceChildren();
});

function shown(state: Partial<CompareViewState>): HTMLElement {
  const now: CompareViewState = { record: null, error: null, ...state };
  dispose = mount(document.body, {
    get: () => now,
    subscribe: () => () => {},
    send: () => Promise.resolve(),
  });
  const view = document.querySelector<HTMLElement>('.wv-compare');
  if (!view) throw new Error('nothing is mounted');
  return view;
}

function rows(view: HTMLElement): HTMLElement[] {
  return [...view.querySelectorAll<HTMLElement>('tbody tr')];
}

function names(view: HTMLElement): (string | null | undefined)[] {
  return rows(view).map((row) => row.querySelector('th')?.textContent);
}

function key(target: Element | null | undefined, name: string): void {
  target?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
}

it('words figures as Python does', () => {
  expect([14, 0.0121, 141e-6, NaN].map(duration)).toEqual(['14.0 s', '12.1 ms', '141 µs', '–']);
  expect([1.02, 1.42, 12.3].map(factor)).toEqual(['1.02×', '1.4×', '12×']);
  expect([3.1e-3, 0, Infinity].map(power)).toEqual(['3e-3', '0', 'not finite']);
  expect(speed(SLOWER)).toEqual({ said: '2.0× slower', interval: '1.60 – 2.50' });
  expect(paysBack(FASTER)).toBe('after 780 steps');
  expect(paysBack({ ...FASTER, break_even: -1 })).toBe('never');
});

it('says which variant to train with, and marks one that was cancelled', () => {
  const view = shown({ record: COMPARED });
  expect(view.querySelector('.wv-verdict')?.textContent).toBe(
    'compile is 2.0× faster than fp32, its first step paid back after 780 steps; ' +
      '99.9% of the answers stay the same.',
  );
  expect(view.textContent).toContain('cancelled');
  expect(view.querySelector('footer')?.textContent).toContain('Cancelled after 3 rounds');
});

it('says that variants are a tie, and within which bound', () => {
  const tie = { ...FASTER, verdict: 'tie' as const, speedup: 1.01 };
  const view = shown({ record: { ...COMPARED, equal_within: 0.005, arms: [BASE, tie] } });
  expect(view.querySelector('.wv-verdict')?.textContent).toBe(
    'Nothing was found to be faster than fp32 here; compile is as fast within 0.5 %.',
  );
  expect(view.querySelector('footer')?.textContent).toContain(
    'A tie is known to differ by less than 0.5 % (two one-sided tests at 2.5 %)',
  );
});

it('says in a row why a variant could not run, and in words which way the others went', () => {
  const view = shown({ record: COMPARED });
  const [base, slower, refused, faster] = rows(view);
  expect(base?.textContent).toContain('baseline');
  expect(slower?.textContent).toContain('2.0× slower');
  expect(refused?.textContent).toBe('attention:cudnnattention cudnn does not exist on cpu');
  expect(faster?.querySelector('.wv-is-faster circle')).not.toBeNull();
});

it('sorts by a column, and leaves last what is not known', () => {
  const view = shown({ record: COMPARED });
  const head = [...view.querySelectorAll<HTMLElement>('thead th')].find((one) =>
    one.textContent?.startsWith('Step'),
  );
  const press = (): void => head?.querySelector('button')?.click();
  press();
  expect(names(view)).toEqual(['compile', 'fp32', 'bf16', 'attention:cudnn']);
  expect(head?.getAttribute('aria-sort')).toBe('ascending');
  press();
  expect(names(view)).toEqual(['bf16', 'fp32', 'compile', 'attention:cudnn']);
  press();
  expect(names(view)).toEqual(['fp32', 'bf16', 'attention:cudnn', 'compile']);
  expect(head?.getAttribute('aria-sort')).toBe('none');
  expect(sorted([NaN, 2, 1], (value) => value, 'descending')).toEqual([2, 1, NaN]);
});

it('shows the rounds and losses of the chosen row beside the baseline’s', () => {
  const view = shown({ record: COMPARED });
  const detail = view.querySelector('.wv-detail');
  expect(detail?.getAttribute('aria-label')).toBe('compile against fp32');
  expect(detail?.querySelectorAll('figure > svg circle.wv-variant')).toHaveLength(2);
  expect(detail?.querySelectorAll('figure > svg path')).toHaveLength(2);
  const chosen = rows(view).find((row) => row.getAttribute('aria-selected') === 'true');
  expect(chosen?.textContent).toContain('compile');
  chosen?.focus();
  key(chosen, 'Home');
  key(document.activeElement, 'ArrowDown');
  expect(detail?.getAttribute('aria-label')).toBe('bf16 against fp32');
  expect(detail?.querySelector('figure > svg')?.getAttribute('aria-label')).toBe(
    'Step time by round: fp32 from 10.0 to 11.0; bf16 from 20.0 to 21.0',
  );
});

it('has a section for each of several models', () => {
  const other = ARMS.map((arm) => ({ ...arm, model: 'other' }));
  const view = shown({ record: { ...COMPARED, arms: [...ARMS, ...other] } });
  expect([...view.querySelectorAll('h3')].map((one) => one.textContent)).toEqual(['net', 'other']);
  expect(rows(view)).toHaveLength(8);
});

it('says that no round was completed, or why nothing can be shown', () => {
  const none = { ...REFUSED, problem: '' };
  const empty = { ...COMPARED, rounds: 0, arms: [none, { ...none, modes: 'bf16' }] };
  const view = shown({ record: { ...empty, block_arm: new Int32Array(0) } });
  expect(view.textContent).toContain('No round was completed');
  expect(view.querySelectorAll('figure')).toHaveLength(0);
  dispose?.();
  expect(shown({ error: 'the file is cut short' }).textContent).toContain('the file is cut short');
});

it('reads figures that were not measured, which a record has as null', () => {
  const view = shown({ record: RECORD });
  expect(names(view)).toEqual(['fp32', 'compile', 'ddp:64']);
  expect(rows(view)[2]?.textContent).toBe('ddp:64no room');
});

it('keeps 1 on the axis, and every interval', () => {
  const { x, marks } = axisOf(ARMS);
  expect(marks).toContain(1);
  expect(x(0.4)).toBeLessThan(x(1));
  expect(x(2.2)).toBeGreaterThan(x(2));
});
