import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { mount, type MemoryViewOptions, type MemoryViewState } from '../src/memory';
import { QuestionQueue } from '../src/memory/questions';
import type { MemoryColumns } from '../src/memory/series';
import {
  batchesOf,
  choiceOf,
  nameOf,
  rowsOf,
  wordsOf,
  type RequestedRow,
  type Row,
} from '../src/what-if/rows';
import { CUDA, OPTIONS, STEP } from './memory-data';

HTMLCanvasElement.prototype.getContext = () => null;

const mounted: (() => void)[] = [];
beforeEach(() => localStorage.clear());
afterEach(() => {
  for (const dispose of mounted.splice(0)) dispose();
  vi.useRealTimers();
});

const certificate = {
  addresses: 3, num_addresses: 3, segments: 0, num_segments: 0, releases: 0, num_releases: 0,
  blocks: 2, num_blocks: 2, num_inferred: 1, first_difference: '', settings: '',
  cases: ['large pool'],
}; // prettier-ignore
const GIB = 2 ** 30;

describe('what is asked', () => {
  it('keeps the recorded settings, whatever they are', () => {
    const settings =
      'expandable_segments:True,large_segment_size_mb:32,roundup_power2_divisions:[1:4,2:8]';
    const choice = choiceOf({ ...CUDA, certificate: { ...certificate, settings } }, 'L40');
    expect(choice.expandable).toBe(true);
    expect(
      wordsOf(choice)
        .split(/,(?=[a-z])/)
        .sort(),
    ).toEqual(settings.split(/,(?=[a-z])/).sort());
    expect(wordsOf({ ...choice, expandable: false, split: 64 })).toContain('max_split_size_mb:64');
    expect(wordsOf({ ...choice, expandable: false })).not.toContain('expandable');
  });

  it('knows the settings of a trace that was not replayed', () => {
    const settings = 'expandable_segments:True,garbage_collection_threshold:0.8';
    const choice = choiceOf({ ...CUDA, certificate: null, settings }, 'L40');
    expect([choice.expandable, choice.collect]).toEqual([true, 0.8]);
    const said = { ...certificate, settings };
    expect(choiceOf({ ...CUDA, settings, certificate: said }, 'L40')).toEqual(choice);
  });

  it('collects garbage only on a GPU, as there is nothing to collect for elsewhere', () => {
    const choice = { ...choiceOf(CUDA, null), collect: 0.8 };
    expect(wordsOf(choice)).toBe('');
    expect(wordsOf({ ...choice, card: 'L40' })).toBe('garbage_collection_threshold:0.8');
  });

  it('is the recording, the usual, and what was chosen, once', () => {
    const phases = [...CUDA.phases, { name: 'Optimizer.step#SGD.step', start: 4, end: 6 }];
    const record = { ...CUDA, phases, batch_size: 4 };
    const recorded = choiceOf(record, 'L40');
    const names = (change: object): string[] => {
      const { rows, chosen } = rowsOf(record, { ...recorded, ...change });
      return [rows[chosen]?.name ?? '', ...rows.map(({ name }) => name)];
    };
    const usual = [
      'As recorded',
      'empty_cache() before step()',
      'expandable_segments',
      'max_split_size 128 MiB',
    ];
    expect(names({})).toEqual(['As recorded', ...usual]);
    expect(names({ split: 128 })).toEqual(['max_split_size 128 MiB', ...usual]);
    expect(names({ batch: 8 })).toEqual(['Batch 8', ...usual, 'Batch 8']);
    expect(names({ batch: 8, expandable: true })).toEqual([
      'Batch 8, expandable',
      ...usual,
      'Batch 8',
      'Batch 8, expandable',
    ]);
    expect(nameOf({ ...recorded, collect: 0.8, divisions: 4 }, recorded)).toBe(
      'Collect 0.8, divisions 4',
    );
  });

  it('offers batches of few bits, and the recorded one', () => {
    expect(batchesOf(8)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64]); // prettier-ignore
    expect(batchesOf(100)).toContain(100);
    expect(batchesOf(1)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });
});

describe('the asker', () => {
  it('has one question under way, drops stale answers and says when it takes long', async () => {
    vi.useFakeTimers();
    const open: ((answer: object) => void)[] = [];
    const asked: object[] = [];
    const heard: unknown[] = [];
    const asker = new QuestionQueue<{ q: number }, object>(
      (question) => {
        asked.push(question);
        return new Promise((done) => open.push(done));
      },
      (answer) => answer,
      {
        answer: (answer) => heard.push(answer),
        error: (sentence) => heard.push(sentence),
        working: (is) => heard.push(is),
      },
    );
    asker.put({ q: 1 });
    asker.put({ q: 2 });
    await vi.advanceTimersByTimeAsync(150);
    expect(asked).toEqual([{ q: 2 }]);
    asker.put({ q: 3 });
    asker.put({ q: 4 });
    await vi.advanceTimersByTimeAsync(400);
    expect(asked).toHaveLength(1);
    expect(heard).toEqual([true]);
    open[0]?.({ a: 2 });
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toEqual([{ q: 2 }, { q: 4 }]);
    open[1]?.({ a: 4 });
    await vi.advanceTimersByTimeAsync(0);
    expect(heard).toEqual([true, { a: 4 }, false]);
    asker.dispose();
  });
});

const CARDS = {
  cards: [
    { name: 'RTX 4090', total_bytes: 24 * GIB, usable_bytes: 23.5 * GIB, source: 'a/b#1' },
    { name: 'L40', total_bytes: 45 * GIB, usable_bytes: 44.5 * GIB, source: 'a/b#2' },
  ],
  context_bytes: GIB / 2,
};

/** Answers as `workbench.memory.simulation.questions` would: an expandable segment saves a GiB. */
function answered(asked: RequestedRow, over: Partial<Row> = {}): Row {
  const peak = (asked.settings.includes('expandable') ? 29 : 30) * GIB * ((asked.batch ?? 4) / 4);
  const usable = asked.card === 'RTX 4090' ? 23.5 * GIB : 44.5 * GIB;
  const recorded = asked.settings === '' && asked.batch === null && asked.empty_before === '';
  return {
    ...asked,
    peak_bytes: peak,
    peak_low: asked.batch === null ? peak : peak - GIB,
    peak_high: peak,
    fits: peak <= usable,
    usable_bytes: usable,
    num_retries: 0,
    failed_event: peak <= usable ? -1 : 3,
    basis: recorded ? 'recorded' : 'uncertified',
    sentence: 'Said.',
    error: '',
    ...over,
  };
}

type Question = { kind: string; rows: RequestedRow[]; chosen: number };

function shown(
  record: MemoryColumns,
  ask?: MemoryViewState['ask'],
  options: MemoryViewOptions = OPTIONS,
): HTMLElement {
  const host = document.createElement('div');
  document.body.append(host);
  const state: MemoryViewState = { record, error: null, ...(ask ? { ask } : {}) };
  mounted.push(
    mount(
      host,
      { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() },
      options,
    ),
  );
  return host;
}

const section = (host: HTMLElement): HTMLElement =>
  host.querySelector<HTMLElement>('section[aria-label="What if?"]') as HTMLElement;
/** Until it holds; a loaded machine takes its time. */
const until = (holds: () => boolean): Promise<void> =>
  vi.waitFor(() => expect(holds()).toBe(true), { timeout: 8_000, interval: 10 });
const pause = (): Promise<void> => new Promise((done) => setTimeout(done, 200));

describe('the row', () => {
  const questions: Question[] = [];
  const ask = (question: object): Promise<object> => {
    const asked = question as Question;
    if (asked.kind === 'cards') return Promise.resolve(CARDS);
    questions.push(asked);
    return Promise.resolve({
      rows: asked.rows.map((row) => answered(row)),
      smallest: { card: 'L40', peak_bytes: 30 * GIB },
    });
  };
  beforeEach(() => questions.splice(0));
  const RECORD = { ...CUDA, certificate, batch_size: 4 };
  const opened = async (record: MemoryColumns = RECORD): Promise<HTMLElement> => {
    const row = section(shown(record, ask));
    row.querySelector<HTMLElement>('[aria-expanded]')?.click();
    await until(() => row.querySelector('tbody') !== null);
    return row;
  };

  it('sends nothing while it is closed, and stays as it was left', async () => {
    const host = shown(RECORD, ask);
    await pause();
    expect(questions).toEqual([]);
    section(host).querySelector<HTMLElement>('[aria-expanded]')?.click();
    await until(() => questions.length === 1);
    const again = shown(RECORD, ask);
    await until(() => questions.length === 2);
    expect(section(again).querySelector('[aria-expanded]')?.getAttribute('aria-expanded')).toBe(
      'true',
    );
  });

  it('says what it would take, whether it fits and on what that stands', async () => {
    const row = await opened();
    expect(row.textContent).toContain('Recorded peak 30.0 GiB, ✕ does not fit: out of memory at');
    expect(row.textContent).toContain('smallest GPU that fits: L40');
    const rows = [...row.querySelectorAll('tbody tr')].map((line) => line.textContent);
    expect(rows[0]).toMatch(/^As recorded30\.0 ✕does not fitas recorded$/);
    expect(rows[1]).toMatch(/^expandable_segments29\.0 ✕does not fit−1\.0uncertified ◇$/);
    const marks = [...row.querySelectorAll('tbody .wv-wi-axis')];
    expect(marks[0]?.querySelector('circle.wv-wi-recorded')).not.toBeNull();
    expect(marks[1]?.querySelector('path')).not.toBeNull();
  });

  it('follows its controls: GPU, settings and batch, one question for each', async () => {
    const row = await opened();
    const press = (name: string): void =>
      [...row.querySelectorAll('button')].find(({ textContent }) => textContent === name)?.click();
    press('48');
    await until(() => row.textContent?.includes('✓ fits') ?? false);
    expect(row.textContent).toContain('Recorded peak 30.0 GiB, ✓ fits 14.5 GiB left');
    row.querySelector<HTMLElement>('[role=switch]')?.click();
    const slider = row.querySelector<HTMLInputElement>('input[type=range]');
    if (slider) slider.value = String(batchesOf(4).indexOf(6));
    slider?.dispatchEvent(new Event('input'));
    await until(() => row.textContent?.includes('Predicted peak 42.5') ?? false);
    expect(slider?.getAttribute('aria-valuetext')).toBe('6 samples');
    expect(questions).toHaveLength(3);
    const { rows, chosen } = questions[2] as Question;
    expect(rows[chosen]).toEqual({
      settings: 'expandable_segments:True',
      card: 'L40',
      batch: 6,
      empty_before: '',
    });
    expect(row.textContent).toContain('Predicted peak 42.5 GiB to 43.5 GiB, ✓ fits 1.0 GiB left');
    const last = row.querySelector('tr[aria-current]');
    expect(last?.textContent).toContain('Batch 6, expandable');
    expect(last?.textContent).toContain('42.50 to 43.50 ◇');
    press('As recorded');
    await until(() => row.textContent?.includes('Recorded peak') ?? false);
    expect(row.querySelector('[role=switch]')?.getAttribute('aria-checked')).toBe('false');
    expect(row.textContent).toContain('Recorded peak 30.0 GiB');
  });

  it('goes to where memory would run out', async () => {
    const row = await opened();
    [...row.querySelectorAll('button')]
      .find(({ textContent }) => textContent === 'event 3')
      ?.click();
    expect(row.closest('.wv-view')?.querySelector('[role=status]')?.textContent).toMatch(
      /^event 3,/,
    );
  });

  it('takes a size of your own, in GiB', async () => {
    const row = await opened();
    const menu = row.querySelector<HTMLSelectElement>('select[aria-label="Other GPU"]');
    if (menu) menu.value = 'own';
    menu?.dispatchEvent(new Event('change'));
    const own = row.querySelector<HTMLInputElement>('input[type=number]');
    expect(own?.hidden).toBe(false);
    if (own) own.value = '12.5';
    own?.dispatchEvent(new Event('change'));
    await until(() => questions.length === 2);
    const question = questions[questions.length - 1];
    expect(question?.rows[question.chosen]?.card).toBe(12.5 * GIB);
  });

  it('leaves letters to the menu of GPUs, which finds one by them', async () => {
    const row = await opened();
    const menu = row.querySelector<HTMLSelectElement>('select[aria-label="Other GPU"]');
    for (const key of ['t', 'f', 'h', 'Home', '/', '+']) {
      const event = new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true });
      expect(menu?.dispatchEvent(event)).toBe(true);
    }
  });

  it('has no slider where the batch is not known, and says why', async () => {
    const row = await opened({ ...RECORD, batch_size: -1 });
    const slider = row.querySelector<HTMLInputElement>('input[type=range]');
    expect(slider?.disabled).toBe(true);
    const why = document.getElementById(slider?.getAttribute('aria-describedby') ?? '');
    expect(why?.textContent).toContain('Its batch is not recorded');
  });

  it('is "on a simulated GPU" for a recording on the CPU', async () => {
    const row = await opened(STEP);
    expect(row.textContent).toContain('on a simulated GPU: predicted from requested bytes');
  });

  it('claims no fit for a recording that ends with a refused request', async () => {
    const past = (question: object): Promise<object> => {
      const asked = question as Question;
      if (asked.kind === 'cards') return Promise.resolve(CARDS);
      const over = { fits: false, got_past: true, failed_event: -1 };
      const smallest = { card: 'L40', peak_bytes: 30 * GIB, is_lower_bound: true };
      return Promise.resolve({ rows: asked.rows.map((row) => answered(row, over)), smallest });
    };
    const row = section(shown(RECORD, past));
    row.querySelector<HTMLElement>('[aria-expanded]')?.click();
    await until(() => row.querySelector('tbody') !== null);
    expect(row.textContent).toContain('30.0 GiB at least, past the refused request;');
    expect(row.textContent).toContain('no GPU smaller than L40');
    expect(row.textContent).not.toMatch(/fits?\b/);
  });

  it('shows what is wrong with one row in that row, and a refusal above all of them', async () => {
    const wrong = (question: object): Promise<object> => {
      const asked = question as Question;
      if (asked.kind === 'cards') return Promise.resolve(CARDS);
      const rows = asked.rows.map((row, at) =>
        answered(row, at === 1 ? { error: 'No such.' } : {}),
      );
      return Promise.resolve({ rows, smallest: null });
    };
    const one = section(shown(RECORD, wrong));
    one.querySelector<HTMLElement>('[aria-expanded]')?.click();
    await until(() => one.querySelector('tbody') !== null);
    expect(one.querySelector('td.wv-wi-error')?.textContent).toBe('No such.');
    expect(one.textContent).toContain('fits on no GPU listed');
    localStorage.clear();
    const dead = section(shown(RECORD, () => Promise.reject(new Error('The kernel has died.'))));
    dead.querySelector<HTMLElement>('[aria-expanded]')?.click();
    await until(() => dead.querySelector('[role=alert]') !== null);
    expect(dead.querySelector('[role=alert]')?.textContent).toBe('The kernel has died.');
    expect([...dead.querySelectorAll('button')].some((b) => b.textContent === 'Try again')).toBe(
      true,
    );
  });

  it('is one sentence where no kernel can answer', () => {
    const row = section(shown(RECORD));
    row.querySelector<HTMLElement>('[aria-expanded]')?.click();
    expect(row.textContent).toContain('No kernel is available to run the allocator');
    expect(row.querySelector<HTMLElement>('.wv-wi-body')?.hidden).toBe(true);
  });

  it('says when what is in it could not be loaded, and tries again', async () => {
    let loads = 0;
    const whatIf: MemoryViewOptions['whatIf'] = () => {
      loads += 1;
      return loads === 1 ? Promise.reject(new Error('The kernel is gone')) : OPTIONS.whatIf();
    };
    const row = section(shown(RECORD, ask, { ...OPTIONS, whatIf }));
    expect(loads).toBe(0);
    row.querySelector<HTMLElement>('[aria-expanded]')?.click();
    await until(() => row.querySelector('[role=alert]') !== null);
    expect(row.querySelector('[role=alert]')?.textContent).toBe(
      '"What if?" could not be loaded: The kernel is gone',
    );
    [...row.querySelectorAll('button')].find((b) => b.textContent === 'Try again')?.click();
    await until(() => row.querySelector('tbody') !== null);
    expect(loads).toBe(2);
    expect(questions).toHaveLength(1);
  });
});
