import { afterEach, describe, expect, it, vi } from 'vitest';
import { mount } from '../src/memory';
import { layMap } from '../src/memory/map-layout';
import { LiveBlocks } from '../src/memory/live';
import { holesOf, momentAt, partsOf } from '../src/memory/moment';
import { Pyramid } from '../src/memory/pyramid';
import { releasesOf } from '../src/memory/releases';
import { readRules } from '../src/memory/rules';
import { columnsOf, positionAt, xOf, type ChartView } from '../src/memory/scale';
import { segmentRows, SegmentTable } from '../src/memory/segment-table';
import { isLive, readSeries, type MemoryColumns } from '../src/memory/series';
import { partsOfSplit, sumOf } from '../src/memory/split-bar';
import {
  ACTIVATIONS,
  BASE,
  CUDA,
  GRADIENTS,
  PARAMETERS,
  recordOf,
  STEP,
  type Block,
  OPTIONS,
} from './memory-data';

HTMLCanvasElement.prototype.getContext = () => null;

const mounted: (() => void)[] = [];
afterEach(() => {
  for (const dispose of mounted.splice(0)) dispose();
});
const MIB = 2 ** 20;

/** Blocks that come and go in no order, like those of a program. */
function many(events: number): MemoryColumns {
  const blocks: number[][] = [];
  const open: number[] = [];
  let seed = 1;
  const random = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  for (let event = 0; event < events; event += 1) {
    const frees = open.length > 40 || (open.length > 0 && random() < 0.45);
    if (frees) {
      const [block = 0] = open.splice(Math.floor(random() * open.length), 1);
      const freed = blocks[block];
      if (freed) freed[1] = event;
    } else {
      open.push(blocks.length);
      blocks.push([event, -1, 1 + Math.floor(random() * 1000), blocks.length % 7, 0, 0, 0]);
    }
  }
  return recordOf(blocks as unknown as Block[], events, 0);
}

const viewOf = (record: MemoryColumns, axis: ChartView['axis']): ChartView => {
  const all = readSeries(record);
  const highest = new Pyramid(all.total);
  const still = {
    allHighest: highest,
    scrubber: 0,
    hover: null,
    brush: null,
    hidden: new Set<number>(),
    filtered: false,
  };
  return {
    record,
    series: all,
    all,
    highest,
    reservedHighest: null,
    axis,
    from: 0,
    to: all.length - 1,
    ...still,
  };
};

describe('the highest of any range', () => {
  it('is that of looking at every value', () => {
    const values = new Float64Array(20_000).map((_, at) => (at * 7_919) % 10_007);
    const pyramid = new Pyramid(values);
    for (const [from, to] of [
      [0, 19_999],
      [63, 64],
      [5, 5],
      [100, 9_000],
      [4_095, 8_193],
      [19_000, 19_999],
    ] as const) {
      let best = from;
      for (let at = from; at <= to; at += 1) if ((values[at] ?? 0) > (values[best] ?? 0)) best = at;
      expect(values[pyramid.argmax(from, to)]).toBe(values[best]);
    }
  });

  it.each(['time', 'events'] as const)('keeps a peak of one event in a pixel, by %s', (axis) => {
    const record = recordOf(
      [
        [-1, -1, 10, PARAMETERS, 0, 0, 0],
        [56_789, 56_790, 1_000_000, ACTIVATIONS, 0, 0, 0],
      ],
      100_000,
      56_789,
    );
    const view = viewOf(record, axis);
    const picks = columnsOf(view, 300, view.highest);
    expect(Math.max(...[...picks].map((at) => view.all.total[at] ?? 0))).toBe(1_000_010);
  });

  it('covers only what is shown, and x and position agree', () => {
    const view = { ...viewOf(STEP, 'time'), from: 1, to: 3 };
    const picks = columnsOf(view, 8, view.highest);
    expect(Math.min(...picks)).toBeGreaterThanOrEqual(1);
    expect(Math.max(...picks)).toBeLessThanOrEqual(3);
    for (const position of [1, 2, 3])
      expect(positionAt(view, 500, xOf(view, 500, position))).toBe(position);
  });
});

describe('the blocks that live', () => {
  it('are the same wherever the scrubber comes from', () => {
    const record = many(9_000);
    const live = new LiveBlocks(record);
    for (const position of [9_000, 0, 4_321, 4_322, 4_300, 8_191, 2_047, 2_048, 6_000]) {
      live.moveTo(position);
      const wanted = Array.from({ length: record.block_start.length }, (_, block) => block);
      const found = [...live.rows.slice(0, live.count)].sort((a, b) => a - b);
      expect(found).toEqual(wanted.filter((block) => isLive(record, block, position)));
    }
  });
});

describe('the allocator at a moment', () => {
  const at = (position: number) => momentAt(CUDA, new LiveBlocks(CUDA), position, readRules(''));

  it('adds up to what is reserved at every event', () => {
    const { reserved } = readSeries(CUDA);
    for (let position = 0; position <= 6; position += 1) {
      const { split, lost } = at(position);
      expect(split.reserved).toBe(reserved?.[position]);
      expect(sumOf(split)).toMatchObject({ exact: true });
      expect(lost).toBe(0);
    }
  });

  it('distinguishes rounding, slack, pinned and releasable', () => {
    expect(partsOf(CUDA, 0, readRules(''))).toEqual({
      requested: 8 * MIB - 100,
      rounding: 100,
      slack: 0,
    });
    expect(partsOf(CUDA, 1, readRules(''))).toEqual({
      requested: 3 * MIB,
      rounding: 0,
      slack: MIB,
    });
    const { split, segments } = at(2);
    expect(split).toMatchObject({ pinned: 10 * MIB - 1024, releasable: 0, slack: MIB });
    expect(segments[0] && holesOf(CUDA, segments[0])).toEqual([
      [8 * MIB, 12 * MIB],
      [16 * MIB, 20 * MIB],
    ]);
    expect(at(4).split.releasable).toBe(2 * MIB);
    expect(partsOfSplit(split).map(({ name }) => name)).not.toContain('Free, private pool');
  });

  it('gives what is free of other streams and private pools names of their own', () => {
    const other = { ...CUDA, segment_stream: [0, 7], segment_private: [0, 0] };
    const { split } = momentAt(other, new LiveBlocks(other), 2, readRules(''));
    expect(split.otherStream).toBe(2 * MIB - 1024);
    const pool = { ...CUDA, segment_private: [0, 1] };
    const own = momentAt(pool, new LiveBlocks(pool), 4, readRules('')).split;
    expect([own.otherPool, own.releasable]).toEqual([2 * MIB, 0]);
  });

  it('gives nothing of a private pool back, in the table as in the bar', () => {
    const pool = { ...CUDA, segment_private: [0, 1] };
    const moment = momentAt(pool, new LiveBlocks(pool), 4, readRules(''));
    const small = segmentRows(pool, moment).find(({ name }) => name === 'Small pool');
    expect(small).toMatchObject({ empty: 1, pinned: 0, kept: 2 * MIB, releasable: 0 });
    const table = new SegmentTable();
    table.show(pool, moment);
    expect(table.element.textContent).toContain('Free, private pool');
  });

  it('joins the ranges of an expandable segment, whose empty pages can be given back', () => {
    const record = {
      ...CUDA,
      segment_start: [-1, -1],
      segment_end: [-1, -1],
      segment_address: [BASE, BASE + 20 * MIB],
      segment_bytes: [20 * MIB, 60 * MIB],
      segment_pool: [1, 1],
      segment_expandable: [1, 1],
    };
    const moment = momentAt(record, new LiveBlocks(record), 0, readRules(''));
    expect(moment.segments).toHaveLength(1);
    expect(moment.split).toMatchObject({
      reserved: 80 * MIB,
      releasable: 60 * MIB,
      pinned: 12 * MIB,
    });
  });

  it('knows releases', () => {
    expect(releasesOf(CUDA)).toEqual([{ first: 5, last: 5, count: 1, bytes: 2 * MIB }]);
  });

  it('has the same totals in the table', () => {
    const moment = at(2);
    const rows = segmentRows(CUDA, moment);
    expect(rows.map(({ name, partly }) => [name, partly])).toEqual([
      ['20 MiB', 1],
      ['Small pool', 1],
    ]);
    const sum = rows.reduce(
      (all, { pinned, kept, releasable, used }) => all + pinned + kept + releasable + used,
      0,
    );
    expect(sum).toBe(moment.split.reserved);
  });
});

describe('the map', () => {
  it('fits where it can, every strip to one scale and none beyond the edge', () => {
    const segments = 500;
    const record = {
      ...CUDA,
      segment_start: Array.from({ length: segments }, () => -1),
      segment_end: Array.from({ length: segments }, () => -1),
      segment_address: Array.from({ length: segments }, (_, row) => BASE + row * 2 ** 30),
      segment_bytes: Array.from({ length: segments }, (_, row) => (row % 9 === 0 ? 900 : 20) * MIB),
      segment_stream: Array.from({ length: segments }, () => 0),
      segment_pool: Array.from({ length: segments }, () => 1),
      segment_expandable: Array.from({ length: segments }, () => 0),
      segment_private: Array.from({ length: segments }, () => 0),
    };
    const moment = momentAt(record, new LiveBlocks(record), 2, readRules(''));
    for (const [width, height] of [
      [1200, 400],
      [600, 300],
    ] as const) {
      const layout = layMap(moment, width, height);
      // What does not fit is scrolled to: strips never become too narrow for their blocks.
      const coarsest = layout.bytesPerPixel * 2 > (20 * MIB) / 4;
      expect(layout.height <= height || coarsest).toBe(true);
      for (const piece of layout.pieces) {
        expect(piece.x + piece.width).toBeLessThanOrEqual(width);
        expect(piece.scale).toBeCloseTo(1 / layout.bytesPerPixel, 12);
      }
      const drawn = new Set(layout.pieces.map(({ segment }) => segment));
      const barred = layout.sections.flatMap(({ groups }) => groups.filter(({ bar }) => bar));
      expect(drawn.size + barred.reduce((sum, group) => sum + group.segments.length, 0)).toBe(
        segments,
      );
    }
  });
});

describe('the view of an allocator', () => {
  const shown = (record: MemoryColumns): HTMLElement => {
    const host = document.createElement('div');
    document.body.append(host);
    const state = { record, error: null };
    const store = { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() };
    mounted.push(mount(host, store, OPTIONS));
    return host;
  };
  const press = (host: HTMLElement, key: string): void => {
    const canvas = host.querySelector('canvas');
    canvas?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  };

  it('opens with the map, T shows the same as a table, H who holds memory', () => {
    const host = shown(CUDA);
    const hidden = (selector: string): boolean =>
      host.querySelector(selector)?.closest('[hidden]') !== null;
    expect(hidden('.wv-map')).toBe(false);
    press(host, 't');
    expect(hidden('.wv-map')).toBe(true);
    expect(host.querySelector('.wv-sizes tfoot')?.textContent).toMatch(/^All2/);
    press(host, 'h');
    expect(host.querySelectorAll('.wv-holders tbody tr')).toHaveLength(3);
  });

  it('sorts the table by a heading, and back', () => {
    const host = shown(CUDA);
    press(host, 't');
    const first = (): string => host.querySelector('.wv-sizes tbody th')?.textContent ?? '';
    const click = (): void =>
      host.querySelector<HTMLElement>('[data-column="Free, pinned"]')?.click();
    expect(first()).toBe('20 MiB');
    click();
    expect(host.querySelector('[aria-sort=descending]')?.textContent).toContain('Free, pinned');
    click();
    expect(first()).toBe('Small pool');
  });

  it('shows a block with its parts, its wait and its segment', () => {
    const host = shown(CUDA);
    press(host, 'h');
    host.querySelector<HTMLElement>('[data-block="1"]')?.click();
    const text = host.querySelector('.wv-inspector')?.textContent ?? '';
    expect(text).toContain('Large pool › 20.0 MiB segment › block 2 of 2');
    expect(text).toContain('Slack1.0 MiB · 1,048,576 B');
    expect(text).toContain('Holes of 4.0 MiB and 4.0 MiB stay pinned');
    expect(text).toContain('Beforefree, 4.0 MiB');
    expect(text).toContain('Free requested2.0 ms, event 2');
  });

  it('walks over the moment that was asked for, also before it is drawn', () => {
    const frames = vi.spyOn(window, 'requestAnimationFrame').mockReturnValue(1);
    try {
      const host = shown({ ...CUDA, oom_event: [] });
      const walk = (key: string): void => {
        const how = { key, bubbles: true };
        host.querySelector('canvas.wv-map')?.dispatchEvent(new KeyboardEvent('keydown', how));
      };
      const chosen = (): string => host.querySelector('.wv-inspector')?.textContent ?? '';
      walk('ArrowRight');
      expect(chosen()).toContain('block 1 of 2');
      press(host, 'Home'); // where the second block is not there yet, nor drawn away
      walk('ArrowRight');
      expect(chosen()).toContain('block 1 of 1');
    } finally {
      frames.mockRestore();
    }
  });

  it('has no empty boxes for a recording without segments', () => {
    const host = shown(STEP);
    for (const selector of ['.wv-map', '.wv-split'])
      expect(host.querySelector(selector)?.closest('[hidden]')).not.toBeNull();
    expect(host.querySelector('[aria-disabled=true]')?.firstChild?.textContent).toBe('Map');
  });

  it('says under which settings it was recorded, also where it was not replayed', () => {
    const settings = 'roundup_power2_divisions:8';
    const whole = { ...CUDA, oom_event: [] };
    expect(shown({ ...whole, settings }).textContent).toContain(`Settings${settings}`);
    expect(shown(whole).textContent).not.toContain('Settings');
  });

  it('says what a replay came to', () => {
    const made = {
      addresses: 2, num_addresses: 2, segments: 0, num_segments: 0, releases: 1, num_releases: 1,
      blocks: 1, num_blocks: 1, first_difference: '', num_inferred: 0, settings: '', cases: ['small pool'],
    }; // prettier-ignore
    expect(shown({ ...CUDA, certificate: made }).textContent).toContain(
      'replay reproduces 100 % of 2 addresses',
    );
    const off = { ...made, addresses: 1, first_difference: 'event 7 lies elsewhere' };
    expect(shown({ ...CUDA, certificate: off }).textContent).toContain(
      'replay reproduces 50.0 %: event 7',
    );
    expect(GRADIENTS).toBe(3);
  });
});
