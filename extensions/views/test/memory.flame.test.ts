import { afterEach, describe, expect, it, vi } from 'vitest';
import { matcher } from '../src/memory/filter';
import { hasFlame } from '../src/memory/callers';
import { Flame } from '../src/flame';
import { layFlame, Siblings } from '../src/flame/layout';
import { FlameSums } from '../src/flame/sums';
import { isLibrary, moduleTree, stackTree, type FlameTree } from '../src/flame/tree';
import { FlameFace } from '../src/memory/flame-face';
import type { Parts } from '../src/memory';
import { Model, type Within } from '../src/memory/model';
import { readSeries, type MemoryColumns } from '../src/memory/series';
import type { Palette } from '../src/graph/theme';
import { ACTIVATIONS, GRADIENTS, OPTIONS, PARAMETERS, recordOf, STEP } from './memory-data';
import { growth, NEAR_LINEAR } from './growth';

HTMLCanvasElement.prototype.getContext = () => null;
afterEach(() => document.body.replaceChildren());

const line = (
  filename: string,
  number: number,
  name: string,
): MemoryColumns['sources'][number] => ({
  filename,
  line: number,
  cell: null,
  function: name,
  text: '',
});
const TORCH = '/lib/site-packages/torch/nn/modules/linear.py';

/** main -> forward (twice, one of them through torch) and main -> step; one block knows no stack. */
const STACKS: MemoryColumns = {
  ...recordOf(
    [
      [-1, -1, 100, PARAMETERS, 0, 3, 0],
      [0, -1, 40, ACTIVATIONS, 1, 0, 4],
      [1, 4, 20, ACTIVATIONS, 1, 0, 4],
      [2, -1, 8, GRADIENTS, 2, 0, 5],
      [3, -1, 1, GRADIENTS, 2, 0, 0],
    ],
    5,
    3,
  ),
  sources: [
    line('/me/train.py', 1, ''),
    line('/me/model.py', 2, 'forward'),
    line(TORCH, 3, 'linear'),
    line('/me/train.py', 4, 'step'),
    line('/lib/site-packages/tool.py', 5, 'run'),
  ],
  call_parent: [-1, 0, 1, 0, -1, 2],
  call_source: [0, 1, 2, 3, 4, 1],
  block_call: [-1, 1, 2, 3, 4],
};

function all(record: MemoryColumns, tree: FlameTree, live: number): FlameSums {
  const sums = new FlameSums(tree);
  sums.read(new Model(record), () => true, { live });
  return sums;
}

const named = (tree: FlameTree, name: string): number => {
  for (let node = 0; node < tree.size; node += 1) if (tree.name(node) === name) return node;
  return -1;
};

describe('the tree of calls', () => {
  it('folds what libraries call into its caller, and says where no own code is', () => {
    const tree = stackTree(STACKS, true);
    const sums = all(STACKS, tree, 4);
    const held = (name: string): number => sums.total[named(tree, name)] ?? -1;
    expect(held('All blocks')).toBe(169);
    expect(held('module level')).toBe(68);
    expect(held('forward')).toBe(60);
    expect(held('step')).toBe(8);
    expect(held('No stack known')).toBe(100);
    expect(held('Library code alone')).toBe(1);
    expect(named(tree, 'linear')).toBe(-1);
    expect(sums.own[named(tree, 'forward')]).toBe(60);
  });

  it('keeps library frames where they are wanted', () => {
    const tree = stackTree(STACKS, false);
    const sums = all(STACKS, tree, 4);
    expect(sums.total[named(tree, 'linear')]).toBe(20);
    expect(sums.own[named(tree, 'forward')]).toBe(40);
    expect(sums.total[named(tree, 'Library code alone')]).toBe(0);
    expect(tree.path(named(tree, 'linear')).map((node) => tree.name(node))).toEqual([
      'module level',
      'forward',
      'linear',
    ]);
  });

  it('adds up by category, at any event, and what a range allocated', () => {
    const tree = stackTree(STACKS, true);
    const sums = all(STACKS, tree, 5);
    const forward = named(tree, 'forward');
    expect(sums.total[forward]).toBe(40);
    expect(sums.parts[ACTIVATIONS]?.[0]).toBe(40);
    expect(sums.parts[GRADIENTS]?.[0]).toBe(9);
    sums.read(new Model(STACKS), () => true, { from: 1, to: 3 });
    expect(sums.total[0]).toBe(28);
    expect(sums.blocks[forward]).toBe(1);
  });

  it('equals the live bytes at every position, whatever the tree', () => {
    for (const tree of [stackTree(STACKS, true), stackTree(STACKS, false), moduleTree(STACKS)]) {
      const { total } = readSeries(STACKS);
      for (let at = 0; at < total.length; at += 1)
        expect(all(STACKS, tree, at).total[0]).toBe(total[at]);
    }
  });

  it('distinguishes modules by their paths', () => {
    const tree = moduleTree(STACKS);
    const sums = all(STACKS, tree, 4);
    expect(sums.total[named(tree, 'body')]).toBe(60);
    expect(tree.place(named(tree, '0'))).toBe('body.0');
    expect(tree.parent[named(tree, '0')]).toBe(named(tree, 'body'));
    expect(sums.total[named(tree, 'No module known')]).toBe(101);
  });

  it('knows a library by its file, as Python does', () => {
    for (const name of [TORCH, '<frozen runpy>', '??', 'csrc/Module.cpp', '/x/torch/_ops.py'])
      expect(isLibrary(name)).toBe(true);
    for (const name of [
      '/me/train.py',
      '<ipython-input-3-abc>',
      '<stdin>',
      '/tmp/ipykernel_7/1.py',
    ])
      expect(isLibrary(name)).toBe(false);
  });

  it('is off where no callers were recorded', () => {
    expect(hasFlame(STACKS)).toBe(true);
    expect(hasFlame(STEP)).toBe(true);
    expect(hasFlame(recordOf([[0, -1, 8, 6, 0, 0, 0]], 1, 0))).toBe(false);
  });
});

describe('bars', () => {
  it('stand below their caller, side by side, and fill what their bytes fill', () => {
    const tree = stackTree(STACKS, false);
    const sums = all(STACKS, tree, 4);
    const bars = layFlame(sums, new Siblings(tree, sums.total), 0, 169);
    const bar = (name: string): (typeof bars)[number] | undefined =>
      bars.find(({ node }) => tree.name(node) === name);
    expect(bar('All blocks')).toMatchObject({ x: 0, width: 169, row: 0 });
    expect(bar('No stack known')).toMatchObject({ x: 0, width: 100, row: 1 });
    expect(bar('module level')).toMatchObject({ x: 100, width: 68, row: 1 });
    expect(bar('forward')).toMatchObject({ x: 100, width: 60, row: 2 });
    expect(bar('step')).toMatchObject({ x: 160, width: 8, row: 2 });
    expect(bar('linear')).toMatchObject({ x: 100, width: 20, row: 3 });
  });

  it('that are too narrow are left out with all below them', () => {
    const tree = stackTree(STACKS, false);
    const sums = all(STACKS, tree, 4);
    const bars = layFlame(sums, new Siblings(tree, sums.total), 0, 16.9);
    expect(bars.map(({ node }) => tree.name(node))).not.toContain('run');
    expect(bars.every(({ width }) => width > 0.5)).toBe(true);
  });
});

describe('the filter', () => {
  const passing = (query: string, also?: (block: number) => boolean): number[] => {
    const fits = matcher(STACKS, { hidden: new Set(), query, also: also ?? null });
    return [0, 1, 2, 3, 4].filter(fits);
  };

  it('finds what a call allocated, itself or through others', () => {
    expect(passing('stack:forward')).toEqual([1, 2]);
    expect(passing('stack:train.py')).toEqual([1, 2, 3]);
    expect(passing('stack:linear')).toEqual([2]);
    expect(passing('stack:linear >30b')).toEqual([]);
  });

  it('finds a module and what is in it', () => {
    expect(passing('module:body')).toEqual([1, 2]);
    expect(passing('module:bod')).toEqual([]);
    expect(passing('module:head')).toEqual([3]);
  });

  it('keeps to what is looked at alone', () => {
    const tree = stackTree(STACKS, true);
    expect(passing('', tree.below(named(tree, 'forward')))).toEqual([1, 2]);
    expect(passing('gradients', tree.below(named(tree, 'module level')))).toEqual([3]);
  });
});

const PALETTE = { select: '', ink: '' } as unknown as Palette;

describe('the flame', () => {
  function flame(record: MemoryColumns = STACKS): {
    show: () => void;
    text: (selector: string) => string;
    press: (name: string) => void;
    only: ReturnType<typeof vi.fn>;
    flame: Flame;
  } {
    const model = new Model(record);
    const only = vi.fn((within: Within | null) => {
      model.within = within;
      model.filter('');
    });
    const made = new Flame({ only, redraw: () => show(), say: () => undefined });
    const show = (): void => made.show(model, PALETTE, null);
    document.body.append(made.element);
    show();
    const press = (name: string): void => {
      const found = [...made.element.querySelectorAll('button')].find(
        (one) => one.textContent?.startsWith(name) && !one.closest('[hidden]'),
      );
      if (!found) throw new Error(`no button ${name}`);
      found.click();
    };
    const text = (selector: string): string =>
      made.element.querySelector(selector)?.textContent ?? '';
    return { show, text, press, only, flame: made };
  }

  it('has the same numbers as a table, enters a row, comes back and narrows the view', () => {
    const { text, press, only, flame: made } = flame();
    expect(text('.wv-said')).toBe('169 B in 5 blocks, live at the peak');
    press('Table');
    const rows = (): string[] =>
      [...made.element.querySelectorAll('[data-node] .wv-link')].map(
        (one) => one.textContent ?? '',
      );
    expect(rows()).toEqual([
      'All blocks',
      'No stack known',
      'module level',
      'forward',
      'step',
      'Library code alone',
    ]);
    press('forward');
    expect(text('.wv-crumbs')).toContain('All blocks › module level › forward 60 B');
    press('Only this');
    expect(only.mock.lastCall?.[0]?.label).toBe('forward model.py:2');
    expect(made.back()).toBe(true);
    expect(made.back()).toBe(true);
    expect(made.back()).toBe(false);
  });

  it('opens and closes rows by keyboard', () => {
    const { press, flame: made } = flame();
    press('Table');
    const row = (): HTMLElement | null => made.element.querySelector('tr[tabindex="0"]');
    row()?.focus();
    const key = (name: string): unknown =>
      row()?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
    key('ArrowDown');
    key('ArrowDown');
    expect(row()?.querySelector('.wv-link')?.textContent).toBe('module level');
    expect(row()?.getAttribute('aria-expanded')).toBe('true');
    key('ArrowLeft');
    expect(row()?.getAttribute('aria-expanded')).toBe('false');
    expect(made.element.querySelectorAll('[data-node]').length).toBe(4);
    key('ArrowRight');
    expect(document.activeElement).toBe(row());
    expect(made.element.querySelectorAll('[data-node]').length).toBe(6);
  });

  it('shows modules where no stacks were recorded, and says why not stacks', () => {
    const { press, flame: made } = flame(STEP);
    press('Table');
    expect(made.element.textContent).toContain('body');
    const stacks = [...made.element.querySelectorAll('button')].find(
      ({ textContent }) => textContent === 'Stacks',
    );
    expect(stacks?.title).toBe('No stacks were recorded');
  });

  it('is read in time near-linear in its blocks and calls', () => {
    const read = (blocks: number): (() => void) => {
      const calls = blocks / 2;
      const column = (of: (at: number) => number): Int32Array =>
        Int32Array.from({ length: blocks }, (_, at) => of(at));
      const record: MemoryColumns = {
        ...recordOf([], 0, -1),
        event_time_us: new Float64Array(blocks),
        block_start: column((at) => at),
        block_end: column(() => -1),
        block_bytes: column(() => 512),
        block_category: column((at) => at % 7),
        block_module: column(() => 0),
        sources: Array.from({ length: 500 }, (_, at) => line('/me/a.py', at, `f${at}`)),
        call_parent: Int32Array.from({ length: calls }, (_, at) => (at < 10 ? -1 : (at / 3) | 0)),
        call_source: Int32Array.from({ length: calls }, (_, at) => at % 500),
        block_call: Int32Array.from({ length: blocks }, (_, at) => (at * 7919) % calls),
      };
      const tree = stackTree(record, true);
      const model = new Model(record);
      const sums = new FlameSums(tree);
      return () => {
        sums.read(model, () => true, { live: blocks });
        layFlame(sums, new Siblings(tree, sums.total), 0, 1200);
        expect(sums.total.reduce((all, one) => all + one, 0)).toBeGreaterThanOrEqual(512 * blocks);
      };
    };
    expect(growth(6_000, read)).toBeLessThan(NEAR_LINEAR);
  });
});

describe('the place of the flame', () => {
  it('loads it when it is first shown, says when that fails, and tries again', async () => {
    let loads = 0;
    const load: Parts['flame'] = () => {
      loads += 1;
      return loads === 1 ? Promise.reject(new Error('The kernel is gone')) : OPTIONS.flame();
    };
    const redraw = vi.fn();
    const face = new FlameFace(load, { only: vi.fn(), redraw, say: vi.fn() });
    expect([loads, face.back()]).toEqual([0, false]);
    const show = (): void => face.show(new Model(STEP), PALETTE, null);
    show();
    show();
    await vi.waitFor(() =>
      expect(face.element.querySelector('[role=alert]')?.textContent).toBe(
        '"Flame" could not be loaded: The kernel is gone',
      ),
    );
    face.element.querySelector('button')?.click();
    await vi.waitFor(() => expect(redraw).toHaveBeenCalledTimes(1));
    show();
    expect(loads).toBe(2);
    expect(face.element.textContent).toContain('Allocated by');
    face.dispose();
  });
});
