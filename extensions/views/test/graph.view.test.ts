import { beforeEach, describe, expect, it } from 'vitest';
import { scoped } from '../src/graph/tokens';
import { graphOf, residual } from './graph-data';
import { press as pressOn, query, shown } from './graph-mounted';

describe('the graph view', () => {
  let host: HTMLElement;
  const press = (key: string, on?: Element): KeyboardEvent => pressOn(host, key, on);
  const title = (): string => query(host, '.wv-inspector h2').textContent ?? '';

  beforeEach(() => {
    host = shown({ record: graphOf(residual(2)), error: null });
  });

  it('walks the data with the arrow keys and says where it is', () => {
    press('ArrowDown');
    expect(title()).toBe('stem');
    press('ArrowDown');
    expect(title()).toBe('conv');
    expect(query(host, '.wv-sr').textContent).toContain('64 B saved, in layers, 0');
    expect(query(host, '.wv-row[aria-selected=true] .name').textContent).toBe('conv');
  });

  it('closes and opens a module with Enter and backs out with Escape', () => {
    press('ArrowDown');
    press('ArrowDown');
    press('Escape');
    expect(title()).toBe('0');
    press('Enter');
    expect(query(host, '.wv-sr').textContent).toBe('0 closed');
    expect(query(host, '.wv-row[aria-selected=true]').getAttribute('aria-expanded')).toBe('false');
    press('Enter');
    expect(query(host, '.wv-sr').textContent).toBe('0 opened');
    expect(query(host, '.wv-row[aria-selected=true]').getAttribute('aria-expanded')).toBe('true');
    query<HTMLElement>(host, '.wv-row[aria-selected=true] .twist').click();
    expect(query(host, '.wv-sr').textContent).toBe('0 closed');
    press('Enter');
    press('Escape');
    press('Escape');
    expect(title()).toBe('test');
  });

  it('takes the wheel where it was pressed into, and in a tab; else the page scrolls', () => {
    const canvas = query<HTMLElement>(host, '.wv-surface');
    const taken = (init: WheelEventInit = {}): boolean =>
      !canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: 9, cancelable: true, ...init }));
    expect([taken(), taken({ ctrlKey: true })]).toEqual([false, true]);
    canvas.focus();
    expect(taken()).toBe(true);
    canvas.blur();
    expect(taken()).toBe(false);
    host.classList.add('jp-Workbench-document');
    expect(taken()).toBe(true);
  });

  it('searches from the slash key, counts and goes on with Enter', () => {
    press('/');
    const field = query<HTMLInputElement>(host, 'input[type=search]');
    expect(document.activeElement).toBe(field);
    field.value = 'relu';
    field.dispatchEvent(new Event('input', { bubbles: true }));
    expect(query(host, 'output').textContent).toBe('1 of 2');
    press('Enter', field);
    expect(query(host, 'output').textContent).toBe('2 of 2');
    press('Escape', field);
    expect(query(host, 'output').textContent).toBe('');
  });

  it('keeps letters that it does not use for the host, and letters while typing for itself', () => {
    let reached = '';
    host.addEventListener('keydown', (event) => (reached += event.key));
    press('x');
    press('f');
    press('x', query(host, 'input[type=search]'));
    expect(reached).toBe('x');
  });

  it('shows the same boxes open in the tree as in the drawing, whichever was pressed', () => {
    const row = (name: string): HTMLElement => {
      const found = [...host.querySelectorAll<HTMLElement>('.wv-row')].find(
        (one) => one.querySelector('.name')?.textContent === name,
      );
      if (!found) throw new Error(`no row ${name}`);
      return found;
    };
    host = shown({ record: graphOf(residual(5)), error: null });
    // A rolled-up box starts closed in both, and the whole drawing has nothing to close.
    expect(row('layers 0 … 4 × 5').getAttribute('aria-expanded')).toBe('false');
    expect(row('Net').hasAttribute('aria-expanded')).toBe(false);
    query<HTMLElement>(row('layers 0 … 4 × 5'), '.twist').click();
    expect(row('layers 0 … 4 × 5').getAttribute('aria-expanded')).toBe('true');
    expect(row('3 Block').getAttribute('aria-expanded')).toBe('true');
    expect(query(host, '.wv-sr').textContent).toBe('layers 0 … 4 opened');
    row('3 Block').click();
    press('Enter');
    expect(row('3 Block').getAttribute('aria-expanded')).toBe('false');
    press('ArrowRight', query(host, '.wv-rows'));
    expect(row('3 Block').getAttribute('aria-expanded')).toBe('true');
  });

  it('says what a numbered module is, beside the number', () => {
    const nodes = [
      { op: 'linear', module: 'body.0' },
      { op: 'relu', module: 'body.1', inputs: [0] },
      { op: 'tanh', module: 'head', inputs: [1] },
    ];
    host = shown({ record: graphOf(nodes), error: null });
    const names = [...host.querySelectorAll('.wv-row .name')].map((one) => one.textContent);
    expect(names).toEqual(['Net', 'body', '0 Block', '1 Block', 'head']);
    expect(query(host, '.wv-row .name .wv-note').textContent).toBe(' Block');
  });

  it('shows the last part of the path alone where there is no room for all', () => {
    const crumbs = (): HTMLElement => query(host, '.wv-crumbs');
    press('ArrowDown');
    press('ArrowDown');
    expect(crumbs().title).toBe('Net › layers › 0 › conv');
    expect(crumbs().hasAttribute('data-cut')).toBe(false);
    Object.defineProperty(crumbs(), 'scrollWidth', { value: 300 });
    press('ArrowDown');
    expect(crumbs().hasAttribute('data-cut')).toBe(true);
    expect(query(host, '.wv-crumbs b').textContent).not.toBe('conv');
  });

  it('has a tree-table with the same numbers', () => {
    press('t');
    const rows = [...host.querySelectorAll('.wv-table [role=row]')];
    const conv = rows.find((row) => row.textContent?.startsWith('conv'));
    expect(conv?.getAttribute('aria-level')).toBe('3');
    expect(conv?.textContent).toContain('64 B');
    expect(rows.filter((row) => row.getAttribute('aria-expanded') === 'true')).toHaveLength(3);
  });

  it('keeps the focus on the row of the table that a key was pressed on', () => {
    press('t');
    const rows = (): HTMLElement[] => [
      ...host.querySelectorAll<HTMLElement>('.wv-table tbody tr[role=row]'),
    ];
    expect(rows().filter(({ tabIndex }) => tabIndex === 0)).toEqual([rows()[0]]);
    const focused = (): number => rows().indexOf(document.activeElement as HTMLElement);
    expect(focused()).toBe(0);
    let reached = '';
    host.addEventListener('keydown', (event) => (reached += event.key));
    press('ArrowDown', rows()[0]);
    press(' ', rows()[1]);
    expect(reached).toBe('');
    expect(focused()).toBe(1);
    expect(rows()[1]?.getAttribute('aria-selected')).toBe('true');
    const count = rows().length;
    press('Enter', rows()[1]);
    expect(rows().length).not.toBe(count);
    expect(focused()).toBe(1);
  });

  it('names the row of the tree that keys act on, while the list has the focus', () => {
    const list = query<HTMLElement>(host, '.wv-rows');
    press('ArrowDown');
    press('ArrowDown', list);
    const active = document.getElementById(list.getAttribute('aria-activedescendant') ?? '');
    expect(active?.getAttribute('aria-selected')).toBe('true');
    expect(list.contains(active)).toBe(true);
    expect(list.querySelectorAll(`#${active?.id}`)).toHaveLength(1);
    expect(list.tabIndex).toBe(0);
  });

  it('lists the parameters of an operation', () => {
    host = shown({
      record: graphOf([
        { op: 'weight', kind: 'parameter', name: 'fc.weight', module: 'fc', shape: '10×4' },
        { op: 'linear', module: 'fc', inputs: [0] },
      ]),
      error: null,
    });
    press('ArrowDown');
    const rows = [...host.querySelectorAll('.wv-inspector tr')].map((row) => row.textContent);
    expect(rows).toContain('weight10×416 B');
  });

  it('requests the host to open a line', () => {
    press('ArrowDown');
    let detail: unknown = null;
    host.addEventListener('workbench:open', (event) => (detail = (event as CustomEvent).detail));
    query<HTMLElement>(host, '.wv-inspector .wv-sec h3 .wv-link').click();
    expect(detail).toMatchObject({ kind: 'goto', source: { filename: 'a.py', line: 3 } });
  });

  it('shows an error beside what still works, and what to do when there is nothing', () => {
    const failed = shown({ record: graphOf(residual(1)), error: 'The step was stopped.' });
    expect(query(failed, '.wv-message [role=alert]').textContent).toContain(
      'The step was stopped.',
    );
    expect(failed.querySelectorAll('.wv-row').length).toBeGreaterThan(2);
    const empty = shown({ record: null, error: null });
    expect(query(empty, '.wv-message').textContent).toContain('No graph yet.');
  });

  it('puts hostile names on the page as text on one line', () => {
    const hostile = `<img src=x onerror=alert(1)>\n${'a'.repeat(10_000)}`;
    const page = shown({
      record: graphOf(
        [
          { op: hostile, module: hostile },
          { op: 'x', module: hostile, inputs: [0] },
        ],
        hostile,
      ),
      error: null,
    });
    expect(page.querySelector('img')).toBeNull();
    for (const name of page.querySelectorAll('.wv-row .name')) {
      expect(name.textContent?.length).toBeLessThanOrEqual(80);
      expect(name.textContent).not.toContain('\n');
    }
  });
});

describe('its stylesheet', () => {
  it('writes tokens short', () => {
    expect(scoped('graph', '.wv-row{color:$ink2}')).toBe('.wv-graph .wv-row{color:var(--wb-ink2)}');
  });

  it('reaches no other view', () => {
    const css = '.wv-view{a:b}.wv-view[x] td,.wv-row{c:d}@media (m){.wv-row{e:f}}';
    expect(scoped('graph', css)).toBe(
      '.wv-view.wv-graph{a:b}.wv-view.wv-graph[x] td,.wv-graph .wv-row{c:d}@media (m){.wv-graph .wv-row{e:f}}',
    );
  });
});
