import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { COMPILE_RECORD, readRecordAs, type CompileRecord } from '@torch-workbench/records';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { mount, type CompileViewState } from '../src/compile';
import { coloured } from '../src/compile/highlight';
import { AT_ONCE } from '../src/compile/more';
import { Report } from '../src/compile/report';
import { seconds } from '../src/compile/words';

/** What `tests/unit/records/support.py: compile_record` holds: one region, one break, one recompile. */
const FILE = join(import.meta.dirname, '../../records/test/fixtures/compile.safetensors');
const RECORD = readRecordAs(COMPILE_RECORD, new Uint8Array(readFileSync(FILE)));

let dispose: (() => void) | null = null;
let hearing = new AbortController();
afterEach(() => {
  hearing.abort();
  hearing = new AbortController();
  dispose?.();
  dispose = null;
  document.body.replaceChildren();
});

function shown(state: Partial<CompileViewState>): {
  view: HTMLElement;
  set: (next: Partial<CompileViewState>) => void;
} {
  let now: CompileViewState = { record: null, error: null, ...state };
  let notify = (): void => {};
  dispose = mount(document.body, {
    get: () => now,
    subscribe: (listener) => {
      notify = listener;
      return () => {};
    },
    send: () => Promise.resolve(),
  });
  const view = document.querySelector<HTMLElement>('.wv-compile');
  if (!view) throw new Error('nothing is mounted');
  const set = (next: Partial<CompileViewState>): void => {
    now = { ...now, ...next };
    notify();
  };
  return { view, set };
}

/** Listens to what the view requests from its host; the host takes it. */
function requestsOf(): unknown[] {
  const all: unknown[] = [];
  const take = (event: Event): void => {
    event.preventDefault();
    all.push((event as CustomEvent<unknown>).detail);
  };
  document.body.addEventListener('workbench:open', take, { signal: hearing.signal });
  return all;
}

function all(view: HTMLElement, selector: string): HTMLElement[] {
  return [...view.querySelectorAll<HTMLElement>(selector)];
}

function key(target: Element | undefined, name: string): void {
  target?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
}

/** The record with its kernels and compilations so many times over. */
function large(times: number): CompileRecord {
  const rows = RECORD.compilation_region.length;
  const columns = Object.entries(RECORD).filter(([name]) => name.startsWith('compilation_'));
  const wide = columns.map(([name, value]) => {
    const column = value as unknown as Float64Array;
    return [
      name,
      column.map.call(new Float64Array(rows * times), (_, at) => column[at % rows] ?? 0),
    ];
  });
  const kernels = Array.from({ length: times }, (_, at) =>
    RECORD.kernels.map((one) => ({ ...one, compilation: at * rows, name: `${one.name}_${at}` })),
  ).flat();
  return { ...RECORD, ...Object.fromEntries(wide), kernels } as CompileRecord;
}

describe('a compile record', () => {
  const report = new Report(RECORD);

  it('is summed as Python sums it', () => {
    expect(report.numGraphs).toBe(2);
    expect(report.seconds).toEqual([1.25, 0.625, 2.5, 6]);
    expect(report.caches).toEqual([
      { name: 'AOTAutograd', hits: 1, lookups: 3 },
      { name: 'FX graphs', hits: 2, lookups: 5 },
    ]);
  });

  it('has breaks before recompiles, each with a line to go to', () => {
    const found = report.findings.map(({ kind, title, source, count }) => [
      kind,
      title,
      source?.line,
      count,
    ]);
    // Dynamo knows no line of that recompile, and what was compiled again has none here.
    expect(found).toEqual([
      ['break', 'Data-dependent branching', 4, 2],
      ['recompile', 'Dimension 0 of x was 4 and is 3.', undefined, 1],
    ]);
  });

  it('counts a recompile of every piece of a region as one, as Python does', () => {
    const again = RECORD.recompiles.flatMap((one) => [one, { ...one, compilation: 1 }]);
    const found = new Report({ ...RECORD, recompiles: again }).findings;
    expect(found.filter(({ kind }) => kind === 'recompile').map(({ count }) => count)).toEqual([2]);
  });

  it('distinguishes code that was given up from code that goes on behind a break', () => {
    const breaks = RECORD.breaks.map((one) => ({ ...one, skipped: true }));
    const kinds = new Report({ ...RECORD, breaks }).findings.map(({ kind }) => kind);
    expect(kinds).toEqual(['given up', 'recompile']);
  });

  it('gives each piece its kernels', () => {
    expect(report.pieces.map(({ kernels }) => kernels)).toEqual([[0], [], []]);
  });

  it('leads to pages alone, whatever stands where a link should', () => {
    const breaks = RECORD.breaks.map((one) => ({ ...one, link: 'javascript:alert(1)' }));
    expect(new Report({ ...RECORD, breaks }).findings[0]?.link).toBe('');
    expect(report.findings[0]?.link).toBe('https://pytorch.org');
  });
});

describe('the view', () => {
  it('asks its host for the line of a break, by a click and by Enter', () => {
    const requests = requestsOf();
    const { view } = shown({ record: RECORD });
    const [broken] = all(view, '.wv-finding');
    broken?.click();
    key(broken, 'Enter');
    broken?.querySelector('button')?.click();
    const line = { kind: 'goto', source: RECORD.sources[1] };
    expect(requests).toEqual([line, line, line]);
  });

  it('leaves a page to its link', () => {
    const requests = requestsOf();
    const { view } = shown({ record: RECORD });
    const page = view.querySelector<HTMLElement>('.wv-finding a');
    page?.addEventListener('click', (event) => event.preventDefault());
    page?.click();
    expect(requests).toEqual([]);
    expect(page?.getAttribute('rel')).toBe('noopener noreferrer');
  });

  it('says so where nothing opens lines', () => {
    const { view } = shown({ record: RECORD });
    all(view, '.wv-finding')[0]?.click();
    expect(view.querySelector('[role=status]')?.textContent).toBe(
      'Lines of code cannot be opened here.',
    );
  });

  it('shows the kernels of the graph that is chosen, and a source to the letter', () => {
    const { view } = shown({ record: RECORD });
    expect(view.querySelector('[role=option]')?.textContent).toContain('aten.gelu');
    expect(view.querySelector('pre code')?.textContent).toBe('void kernel() {}');
    const second = all(view, 'tbody tr[aria-selected]')[1];
    second?.click();
    expect(second?.getAttribute('aria-selected')).toBe('true');
    expect(view.querySelector('[role=option]')).toBeNull();
    expect(view.querySelector('.wv-kernels')?.textContent).toContain('No kernel');
  });

  it('says of a graph without kernels why it has none', () => {
    const strings = [...RECORD.strings, 'Unsupported: a thing it cannot do'];
    const none = Int32Array.of(0, 0, 0);
    const given = { compilation_operations: none, compilation_error: Int32Array.of(0, 3, 0) };
    const { view } = shown({ record: { ...RECORD, strings, kernels: [], ...given } });
    const kernels = view.querySelector('.wv-kernels');
    expect(kernels?.textContent).toContain('it runs as Python.');
    all(view, 'tbody tr[aria-selected]')[1]?.click();
    expect(kernels?.textContent).toContain('Unsupported: a thing it cannot do');
  });

  it('moves by arrows with one tab stop in each list', () => {
    const { view } = shown({ record: RECORD });
    key(view, 'g');
    const rows = all(view, 'tbody tr[aria-selected]');
    expect(document.activeElement).toBe(rows[0]);
    key(rows[0], 'ArrowDown');
    expect(document.activeElement).toBe(rows[1]);
    expect(rows.map(({ tabIndex }) => tabIndex)).toEqual([-1, 0, -1]);
    expect(rows[1]?.getAttribute('aria-selected')).toBe('true');
  });

  it('requests a source that did not come along, and for nothing twice in the wrong place', async () => {
    const bare = RECORD.kernels.map((one) => ({ ...one, code: '' }));
    const kernels = [...bare, ...bare.map((one) => ({ ...one, name: 'second' }))];
    const answers = new Map<number, (code: string) => void>();
    const source = (row: number) => new Promise<string>((resolve) => answers.set(row, resolve));
    const { view } = shown({ record: { ...RECORD, kernels }, source });
    const code = view.querySelector('.wv-source');
    expect(code?.textContent).toContain('Requesting the source');
    all(view, '[role=option]')[1]?.click();
    answers.get(0)?.('of the first');
    answers.get(1)?.('of the second');
    await vi.waitFor(() => expect(code?.textContent).toContain('of the second'));
    expect(code?.textContent).not.toContain('of the first');
  });

  it('says why a source does not come', async () => {
    const kernels = RECORD.kernels.map((one) => ({ ...one, code: '' }));
    const source = () =>
      Promise.reject(new Error('The kernel was restarted: run this cell again.'));
    const { view } = shown({ record: { ...RECORD, kernels }, source });
    const code = view.querySelector('.wv-source');
    await vi.waitFor(() => expect(code?.textContent).toContain('The kernel was restarted'));
  });

  it('lists some of many graphs, and the rest on demand', () => {
    const { view } = shown({ record: large(200) });
    const rows = (): number => all(view, 'tbody tr').length;
    expect(rows()).toBe(AT_ONCE);
    const more = all(view, '.wv-pieces .wv-more button')[0];
    expect(more?.textContent).toBe('Show more (501 left)');
    more?.click();
    expect(rows()).toBe(2 * AT_ONCE);
  });

  it('filters graphs by what their kernels are made of', () => {
    vi.useFakeTimers();
    const { view } = shown({ record: RECORD });
    const field = view.querySelector('input');
    if (!field) throw new Error('there is no field');
    field.value = 'GELU';
    field.dispatchEvent(new Event('input'));
    vi.runAllTimers();
    expect(all(view, 'tbody tr[aria-selected]')).toHaveLength(1);
    key(field, 'Escape');
    expect(all(view, 'tbody tr[aria-selected]')).toHaveLength(3);
    vi.useRealTimers();
  });

  it('shows an error, nothing yet, and what to do where nothing was compiled', () => {
    const { view, set } = shown({});
    expect(view.textContent).toContain('No report yet.');
    set({ error: 'the file ends in the middle' });
    expect(view.querySelector('[role=alert]')?.textContent).toContain(
      'the file ends in the middle',
    );
    const columns = Object.keys(RECORD).filter((name) => name.startsWith('compilation_'));
    const none = Object.fromEntries(columns.map((name) => [name, new Int32Array(0)]));
    const lists = { regions: [], breaks: [], recompiles: [], kernels: [], switches: [], notes: [] };
    const empty = { ...RECORD, ...none, ...lists } as CompileRecord;
    set({ error: null, record: empty });
    expect(view.textContent).toContain('Compile is off');
    set({ record: { ...empty, experiment: null } });
    expect(view.textContent).toContain('The first forward of a model');
    set({ record: { ...empty, experiment: null, model: '' } });
    expect(view.textContent).toContain('Nothing was compiled in this block');
    const late = 'At least 3 graphs of its regions had been compiled before.';
    set({ record: { ...empty, experiment: null, notes: [late] } });
    expect(view.textContent).toContain('No compilation was seen');
    expect(view.textContent).toContain(late);
    expect(view.textContent).not.toContain('Nothing was compiled');
    const on = { step: 0, modes: 'compile', compiled: true, num_compilations: 0 };
    set({ record: { ...empty, switches: [on] } });
    expect(view.textContent).toContain('the next step compiles');
    set({ record: RECORD });
    expect(view.querySelector('.wv-message')?.hasAttribute('hidden')).toBe(true);
    expect(all(view, '.wv-finding')).toHaveLength(2);
  });

  it('puts what a record says on the page as text', () => {
    const breaks = RECORD.breaks.map((one) => ({ ...one, reason: '<img src=x onerror=alert(1)>' }));
    const { view } = shown({ record: { ...RECORD, breaks } });
    expect(view.querySelector('img')).toBeNull();
    expect(view.textContent).toContain('<img src=x');
  });
});

describe('colours of generated code', () => {
  const read = (text: string, language: string): [string | null, string][] =>
    coloured(text, language).flatMap((part): [string | null, string][] =>
      part instanceof Element ? [[part.className, part.textContent ?? '']] : [],
    );

  it('find comments, strings, numbers and words of C++', () => {
    expect(read('#include <x>\nfor (auto a = 0L;) // "no" 1\n"for 2"', 'C++')).toEqual([
      ['wv-comment', '#include <x>'],
      ['wv-word', 'for'],
      ['wv-word', 'auto'],
      ['wv-number', '0L'],
      ['wv-comment', '// "no" 1'],
      ['wv-string', '"for 2"'],
    ]);
  });

  it('and of Triton, whose docstrings run over lines', () => {
    expect(read("'''a\nfor'''\ntmp0 = 1.5e-05 # in", 'Triton')).toEqual([
      ['wv-string', "'''a\nfor'''"],
      ['wv-number', '1.5e-05'],
      ['wv-comment', '# in'],
    ]);
  });

  it('lose no letter', () => {
    const text = 'extern "C" void kernel(const float* in, /* a\nb */ long n) {\n\t"open\n}';
    for (const language of ['C++', 'Triton']) {
      const parts = coloured(text, language);
      const joined = parts.map((part) => (part instanceof Node ? part.textContent : part)).join('');
      expect(joined).toBe(text);
    }
  });
});

it.each([
  [0.0004, '0 ms'],
  [0.41, '410 ms'],
  [0.9996, '1.0 s'],
  [12.34, '12.3 s'],
  [1212.3, '1,212 s'],
])('%d seconds are %s', (value, text) => expect(seconds(value)).toBe(text));
