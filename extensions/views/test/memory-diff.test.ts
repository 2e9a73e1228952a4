import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readSeries, type MemoryColumns } from '../src/memory/series';
import { positionAt, xOf } from '../src/memory/scale';
import { mount, type MemoryDiffState } from '../src/memory-diff';
import { align } from '../src/memory-diff/align';
import { BY } from '../src/memory-diff/naming';
import { csvOf } from '../src/memory-diff/csv';
import { Pair } from '../src/memory-diff/pair';
import { ACTIVATIONS, KIB, PARAMETERS, recordOf, STEP, STRINGS } from './memory-data';

// jsdom has no canvas; the views draw nothing there and everything else works.
HTMLCanvasElement.prototype.getContext = () => null;

interface Given {
  title: string;
  events: number;
  strings: string[];
  phases: [string, number, number][];
  sources: MemoryColumns['sources'];
  blocks: number[][];
  call_parent: number[];
  call_source: number[];
}

type Figures = [string, number, number, number, number];

interface Case {
  a: Given;
  b: Given;
  expected: {
    sentence: string;
    change: number;
    peaks: [number, number][];
    by: Record<(typeof BY)[number], Figures[]>;
  };
}

/** Written by `python -m tests.unit.memory.diff_case`. */
const CASE = JSON.parse(
  readFileSync(join(import.meta.dirname, 'fixtures/memory-diff.json'), 'utf8'),
) as Case;

function recordFrom(given: Given): MemoryColumns {
  const column = (at: number): number[] => given.blocks.map((block) => block[at] ?? 0);
  const calls = column(5);
  const record: MemoryColumns = {
    ...recordOf([], given.events, -1),
    title: given.title,
    strings: given.strings,
    sources: given.sources,
    phases: given.phases.map(([name, start, end]) => ({ name, start, end })),
    block_start: column(0),
    block_end: column(1),
    block_bytes: column(2),
    block_requested: column(2),
    block_category: column(3),
    block_module: column(4),
    block_call: calls,
    block_source: calls.map((call) => given.call_source[call] ?? -1),
    call_parent: given.call_parent,
    call_source: given.call_source,
  };
  const { total, most } = readSeries(record);
  return { ...record, peak_bytes: most, peak_event: total.indexOf(most) - 1 };
}

const [A, B] = [recordFrom(CASE.a), recordFrom(CASE.b)];

/** `STEP` with a second activation of 40 KiB in another module. */
const WIDER = recordOf(
  [
    [-1, -1, 20 * KIB, PARAMETERS, 0, 3, 5],
    [0, 4, 60 * KIB, ACTIVATIONS, 1, 0, 4],
    [1, 5, 40 * KIB, ACTIVATIONS, 1, 0, 5],
    [3, -1, 20 * KIB, 3, 2, 0, 4],
  ],
  6,
  3,
);

describe('what Python and the browser say of the same two recordings', () => {
  const pair = new Pair(A, B);
  const { expected } = CASE;

  it('is the same peak', () => {
    const peaks = [A, B].map((record) => [record.peak_event, record.peak_bytes]);
    expect(peaks).toEqual(expected.peaks);
    expect(pair.change).toBe(expected.change);
  });

  it.each(BY)('is the same by %s, row by row', (by) => {
    const rows = pair
      .changes(by)
      .map((row) => [row.what, row.before, row.after, row.blocksBefore, row.blocksAfter]);
    expect(rows).toEqual(expected.by[by]);
  });

  it('is the same sentence', () => expect(pair.sentence).toBe(expected.sentence));
});

describe('a table in a file', () => {
  it('has every group, and adds up to the change by each', () => {
    const strings = [...STRINGS.slice(0, 5), 'head, "quoted"'];
    const lines = csvOf(new Pair(STEP, { ...WIDER, strings }))
      .trim()
      .split('\r\n');
    expect(lines[0]).toBe('by,what,a_bytes,b_bytes,change_bytes,a_blocks,b_blocks');
    expect(lines[1]).toBe('category,activations,61440,102400,40960,1,2');
    expect(lines).toContain('module,"head, ""quoted""",0,61440,61440,0,2');
  });
});

describe('a table of a record that anybody may have written', () => {
  const cellOf = (what: string): string => {
    const strings = [...STRINGS.slice(0, 5), what];
    const lines = csvOf(new Pair(STEP, { ...WIDER, strings })).split('\r\n');
    return lines.find((line) => line.startsWith('module,') && line.includes(',61440,')) ?? '';
  };

  const cells = JSON.parse(
    readFileSync(join(import.meta.dirname, 'fixtures/csv-cells.json'), 'utf8'),
  ) as [string, string][];

  it.each(cells)('%j is %j, as in Python', (text, cell) =>
    expect(cellOf(text)).toContain(`module,${cell},`),
  );
});

describe('a shared axis', () => {
  const { a, b, paired } = align(A, B);

  it('has phases of the same name below each other', () => {
    expect(paired).toBe(3);
    expect(a.places).toEqual(b.places);
    expect(a.places.at(-1)).toBeCloseTo(1);
  });

  it('puts each phase of a shorter recording where that of a longer one is', () => {
    const views = new Pair(STEP, WIDER);
    const starts = [views.a, views.b].map(({ record, view }) =>
      xOf(view, 1000, record.phases[1]?.start ?? 0),
    );
    expect(starts[0]).toBeCloseTo(starts[1] ?? 0, 6);
    for (const { view } of [views.a, views.b])
      for (let position = 0; position <= view.to; position += 1)
        expect(positionAt(view, 1000, xOf(view, 1000, position) + 1e-6)).toBe(position);
  });

  it('leaves room for a phase that only one of them has', () => {
    const step = { name: 'optimizer', start: 4, end: 6 };
    const more = {
      ...WIDER,
      phases: [...WIDER.phases.slice(0, 1), { name: 'backward', start: 2, end: 4 }, step],
    };
    const views = new Pair(STEP, more);
    expect(xOf(views.a.view, 1000, 4)).toBeCloseTo(xOf(views.b.view, 1000, 4), 6);
    expect(xOf(views.b.view, 1000, 6)).toBeCloseTo(982, 6);
  });

  it('is filled by both where neither has phases', () => {
    const bare = [STEP, WIDER].map((record) => ({ ...record, phases: [] }));
    const views = new Pair(bare[0] ?? STEP, bare[1] ?? WIDER);
    expect(views.paired).toBe(0);
    for (const { view } of [views.a, views.b]) expect(xOf(view, 1000, view.to)).toBe(982);
  });
});

const mounted: (() => void)[] = [];
afterEach(() => {
  for (const dispose of mounted.splice(0)) dispose();
});

function show(state: Partial<MemoryDiffState>): { host: HTMLElement; key: (key: string) => void } {
  const host = document.createElement('div');
  document.body.append(host);
  const all: MemoryDiffState = { a: null, b: null, error: null, ...state };
  const store = { get: () => all, subscribe: () => () => {}, send: () => Promise.resolve() };
  const dispose = mount(host, store);
  mounted.push(() => {
    dispose();
    host.remove();
  });
  const key = (name: string): void => {
    const target = host.contains(document.activeElement) ? document.activeElement : null;
    const view = target ?? host.querySelector('.wv-view');
    view?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
  };
  return { host, key };
}

const frame = (): Promise<unknown> => new Promise((done) => requestAnimationFrame(done));
const rowsOf = (host: HTMLElement): HTMLElement[] => [
  ...host.querySelectorAll<HTMLElement>('.wv-diffs tbody tr'),
];
const textOf = (host: HTMLElement, selector: string): string =>
  host.querySelector(selector)?.textContent ?? '';

describe('the view', () => {
  it('lists the largest change first, with totals', () => {
    const { host } = show({ a: STEP, b: WIDER });
    expect(textOf(host, '.wv-peak')).toBe(
      "B's peak is 40.0 KiB higher, 100 KiB to 140 KiB; the largest change is +40.0 KiB of activations in head.",
    );
    expect(rowsOf(host).map((row) => row.textContent)).toEqual([
      'activations60.0 KiB100 KiB+40.0 KiB+67 %1 → 2',
    ]);
    expect(textOf(host, 'tfoot')).toBe('Peak100 KiB140 KiB+40.0 KiB+40 %3 → 4');
    expect(textOf(host, '.wv-under')).toBe('Show 2 categories that did not change');
  });

  it('groups, filters and lights by keyboard', async () => {
    const { host, key } = show({ a: STEP, b: WIDER });
    key('2');
    await frame();
    expect(rowsOf(host).map((row) => row.dataset['what'])).toEqual(['head']);
    rowsOf(host)[0]?.focus();
    key('Enter');
    expect(rowsOf(host)[0]?.getAttribute('aria-selected')).toBe('true');
    expect(textOf(host, '[role=status]')).toBe('head: 20.0 KiB in A, 60.0 KiB in B, +40.0 KiB');
    expect(textOf(host, '.wv-inspector')).toContain('By category');
    key('Escape');
    expect(rowsOf(host)[0]?.getAttribute('aria-selected')).toBe('false');
    const search = host.querySelector('input');
    if (search) search.value = 'body';
    search?.dispatchEvent(new Event('input'));
    const none = 'No module of that name differs.';
    await vi.waitFor(() => expect(textOf(host, '.wv-under')).toContain(none));
  });

  it('reads it the other way round', () => {
    const { host, key } = show({ a: STEP, b: WIDER, names: ['old.pickle', 'new.pickle'] });
    const notified = vi.fn();
    host.addEventListener('workbench:swap', notified);
    expect(textOf(host, '.wv-head b')).toBe('old.pickle');
    key('x');
    expect(textOf(host, '.wv-head b')).toBe('new.pickle');
    expect(textOf(host, '.wv-peak')).toContain("B's peak is 40.0 KiB lower");
    expect(rowsOf(host)[0]?.textContent).toContain('−40.0 KiB');
    expect(notified).toHaveBeenCalledTimes(1);
  });

  it('has the timelines as numbers', () => {
    const { host, key } = show({ a: STEP, b: WIDER });
    key('t');
    expect(host.querySelector<HTMLElement>('.wv-charts')?.hidden).toBe(true);
    const rows = [...host.querySelectorAll('.wv-phases tbody tr')].map((row) => row.textContent);
    expect(rows[0]).toBe('forward80.0 KiB120 KiB+40.0 KiB+50 %');
    expect(rows.at(-1)).toBe('Whole recording100 KiB140 KiB+40.0 KiB+40 %');
  });

  it('says that both are made of the same, and still lists it', async () => {
    const { host } = show({ a: STEP, b: STEP });
    expect(textOf(host, '.wv-peak')).toBe(
      'Both peaks are 100 KiB; what they are made of is the same.',
    );
    expect(textOf(host, '.wv-equal')).toContain('Nothing differs');
    host.querySelector<HTMLElement>('.wv-under button')?.click();
    await frame();
    expect(rowsOf(host)).toHaveLength(3);
  });

  it('says what it cannot show', () => {
    expect(textOf(show({ error: 'a.pickle is damaged' }).host, '[role=alert]')).toContain(
      'a.pickle is damaged',
    );
    expect(textOf(show({ a: STEP }).host, '.wv-message')).toBe('Nothing to compare yet.');
  });

  it('compares with a recording in which nothing happened', () => {
    const nothing = recordOf([[-1, -1, 20 * KIB, PARAMETERS, 0, 3, 5]], 0, -1);
    const { host } = show({ a: { ...nothing, peak_bytes: 20 * KIB }, b: STEP });
    expect(textOf(host, '.wv-peak')).toContain("B's peak is 80.0 KiB higher");
  });

  it('shows hostile names as text', () => {
    const strings = [...STRINGS.slice(0, 5), '<img src=x onerror=alert(1)>'];
    const { host, key } = show({ a: STEP, b: { ...WIDER, strings } });
    key('2');
    expect(host.querySelector('img')).toBeNull();
  });
});
