import { NODE_KINDS } from '@torch-workbench/records';
import { beforeEach, describe, expect, it } from 'vitest';
import { mount } from '../src/diff';
import type { DiffColumns } from '../src/diff/columns';
import { diffOf, EARLY_EXIT } from './diff-data';
import { residual } from './graph-data';
import { buttonNamed, find, press as pressOn, query, sectionText } from './graph-mounted';

function shown(record: DiffColumns | null, error: string | null = null): HTMLElement {
  document.body.replaceChildren();
  const host = document.createElement('div');
  document.body.append(host);
  const state = { record, error };
  mount(host, { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() });
  return host;
}

describe('the diff view', () => {
  let host: HTMLElement;
  const press = (key: string): KeyboardEvent => pressOn(host, key);
  const title = (): string => query(host, '.wv-inspector h2').textContent ?? '';
  const said = (): string => query(host, '.wv-sr').textContent ?? '';

  beforeEach(() => {
    host = shown(diffOf(EARLY_EXIT, { loss: [0.377, 0.367] }));
  });

  it('names both captures with their totals, and counts what became of the operations', () => {
    const sides = query(host, '.wv-sides').textContent ?? '';
    expect(sides).toContain('before');
    expect(sides).toContain('5 nodes · 100 B saved · 0 casts');
    expect(query(host, '.wv-chips').textContent).toBe(
      '−Removed3+Added1≠Changed1⇄Casts0▽Gradient beyond × 31=Same2',
    );
    const titles = [...host.querySelectorAll<HTMLElement>('.wv-chips button')].map((c) => c.title);
    expect(titles.slice(0, 2)).toEqual(['Only in A: 3 operations', 'Only in B: 1 operation']);
    expect(sectionText(host, 'Removed')).toContain('3 operations');
    expect(sectionText(host, 'Totals')).toContain('0.377');
  });

  it('goes to the next and the previous change by keyboard and says what it is', () => {
    press('n');
    expect(title()).toBe('linear');
    expect(said()).toContain('linear, changed from A to B, float32 → bfloat16');
    press('n');
    expect(title()).toBe('late');
    expect(query(host, '[aria-label=Changes]').textContent).toContain('2 of 4');
    press('p');
    expect(title()).toBe('linear');
  });

  it('shows before and after of an operation', () => {
    press('n');
    const tensors = sectionText(host, 'Tensors');
    expect(tensors).toContain('Dtypefloat32bfloat16≠');
    expect(tensors).toContain('Held first8 B4 B−4 B');
  });

  it('leads to the source line', () => {
    press('n');
    let detail: unknown;
    host.addEventListener('workbench:open', (event) => (detail = (event as CustomEvent).detail));
    buttonNamed(host, 'a.py:3').click();
    expect(detail).toMatchObject({ kind: 'goto', source: { line: 3 } });
  });

  it('lights what a chip names, until Escape', () => {
    buttonNamed(host, '−Removed').click();
    expect(query(host, '.wv-lit').textContent).toContain('Only in A: 3 operations');
    expect(buttonNamed(host, '−Removed').getAttribute('aria-pressed')).toBe('true');
    press('Escape');
    expect(query<HTMLElement>(host, '.wv-lit').hidden).toBe(true);
  });

  it('lights what A has, without the lines that only B has', () => {
    const [a, b] = host.querySelectorAll<HTMLButtonElement>('.wv-side button');
    a?.click();
    expect(a?.getAttribute('aria-pressed')).toBe('true');
    expect(said()).toBe('All that A has: 6 operations');
    b?.click();
    expect(a?.getAttribute('aria-pressed')).toBe('false');
    expect(said()).toBe('All that B has: 4 operations');
    b?.click();
    expect(said()).toBe('All lit');
  });

  it('says that what a compiled node runs inside is not compared', () => {
    const record = diffOf([{ op: 'compiled' }]);
    host = shown({ ...record, node_kind: [NODE_KINDS.indexOf('compiled')] });
    expect(sectionText(host, 'What these captures could not know')).toContain(
      'what 1 compiled node ran inside: not compared',
    );
    find(host, 'compiled');
    expect(sectionText(host, 'Compiled')).toContain('What it runs inside is not compared');
  });

  it('folds what did not change and keeps the selection', () => {
    press('n');
    press('o');
    expect(buttonNamed(host, 'Only changes').getAttribute('aria-pressed')).toBe('true');
    expect(title()).toBe('linear');
    press('o');
    expect(buttonNamed(host, 'All').getAttribute('aria-pressed')).toBe('true');
  });

  it('finds by state and by what B has', () => {
    find(host, 'added');
    expect(title()).toBe('div');
    find(host, 'bfloat16');
    expect(title()).toBe('linear');
  });

  it('has a table with both captures', () => {
    press('t');
    const head = [...host.querySelectorAll('.wv-table th')].map((cell) => cell.textContent);
    expect(head).toEqual(
      expect.arrayContaining(['Change', 'Dtype', 'Saved A', 'Saved B', 'B − A']),
    );
    const text = query(host, '.wv-table tbody').textContent;
    expect(text).toContain('− removed');
    expect(text).toContain('float32 → bfloat16');
  });
});

describe('a diff without changes', () => {
  it('says that the two captures are equal, over the drawing', () => {
    const host = shown(diffOf(residual(2), { sentence: 'A and B are the same graph.' }));
    const card = query<HTMLElement>(host, '.wv-equal');
    expect(card.hidden).toBe(false);
    expect(card.textContent).toBe('The two graphs are equalA and B are the same graph.✕');
    expect(buttonNamed(host, 'Only changes').getAttribute('aria-disabled')).toBe('true');
    pressOn(host, 'n');
    expect(query(host, '.wv-inspector').textContent).toContain('A and B are the same graph.');
    query<HTMLElement>(card, 'button').click();
    expect(card.hidden).toBe(true);
  });

  it('says what to do while there is none, and shows an error', () => {
    expect(query(shown(null), '.wv-message').textContent).toContain('wb.graph(a).diff(b)');
    expect(query(shown(null, 'cut short'), '[role=alert]:not([hidden])').textContent).toContain(
      'cut short',
    );
  });

  it('takes hostile names as text', () => {
    const bad = '<img src=x onerror=alert(1)>';
    const nodes = EARLY_EXIT.map((node) => ({ ...node, op: `${bad}${node.op}` }));
    const host = shown(diffOf(nodes, { sentence: `${bad} \`${bad}\`` }));
    pressOn(host, 'n');
    pressOn(host, 't');
    expect(host.querySelector('img')).toBeNull();
  });

  it('draws or refuses a diff that points nowhere, and never throws', () => {
    const record = diffOf(EARLY_EXIT);
    const far = (column: ArrayLike<unknown>): number[] => Array.from(column, () => 1_000_000);
    const broken: Partial<DiffColumns>[] = [
      { edge_from: far(record.edge_from) },
      { edge_from: record.edge_to, edge_to: record.edge_from },
      { node_state: far(record.node_state) },
      { node_shape_b: far(record.node_shape_b), node_source_b: far(record.node_source_b) },
      { node_module: far(record.node_module) },
      { a: { ...record.a, root: 1_000_000 }, root: 1_000_000 },
      { cause_source: 1_000_000 },
      { node_saved_bytes_b: [], node_gradient_norm_b: [] },
    ];
    for (const change of broken) {
      const host = shown({ ...record, ...change });
      for (const key of ['n', 'n', 'o', 't']) pressOn(host, key);
      expect(host.querySelector('.wv-diff')).not.toBeNull();
    }
  });
});
