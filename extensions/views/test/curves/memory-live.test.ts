import { describe, expect, it } from 'vitest';
import { liveMemory, liveMemoryStrip } from '../../src/curves';
import { MOST_SAMPLES } from '../../src/curves/memory-live-data';
import { curveOf, type Curve } from '../../src/kernel';

const MIB = 2 ** 20;

/** With room behind the points that count, as a growing curve has. */
function curve(values: number[], start = 1): Curve {
  const held = new Float32Array(values.length + 9).fill(1e30);
  held.set(values.map((value) => value * MIB));
  const steps = Int32Array.from(held, (_, i) => start + 10 * i);
  return curveOf(steps, held, values.length);
}

function onCuda(): Map<string, Curve> {
  return new Map([
    ['memory/allocated', curve([100, 120, 110])],
    ['memory/reserved', curve([128, 256, 256])],
    ['memory/fragmentation', curve([4, 8, 16])],
    ['memory/allocated_peak', curve([180, 240, 200])],
  ]);
}

function shown(curves: ReadonlyMap<string, Curve>): HTMLElement {
  const strip = liveMemoryStrip(44);
  strip.update(liveMemory(curves));
  return strip.el;
}

const legend = (el: HTMLElement): string[] =>
  [...el.querySelectorAll<HTMLElement>('.wb-key:not([hidden])')].map(
    (key) => key.textContent ?? '',
  );

describe('memory while it trains', () => {
  it('is nothing before the first sample, and says so', () => {
    expect(liveMemory(new Map())).toBeNull();
    const el = shown(new Map([['train/loss', curve([1])]]));
    expect(el.textContent).toContain('No measurements yet');
    expect(legend(el)).toEqual([]);
    expect(el.getAttribute('aria-label')).toContain('No measurements yet');
  });

  it('shows the allocator’s counters with the highest peak there was', () => {
    const el = shown(onCuda());
    expect(legend(el)).toEqual([
      'allocated 110 MiB',
      'reserved 256 MiB',
      'fragmentation 16 MiB',
      'peak 240 MiB', // other code reset the allocator's peak since
    ]);
    expect(el.getAttribute('aria-label')).toBe(
      'Memory after step 21, caching allocator: allocated 110 MiB, reserved 256 MiB, ' +
        'fragmentation 16 MiB; peak 240 MiB',
    );
  });

  it('draws a single sample as a level with its area', () => {
    const el = shown(new Map([['memory/resident', curve([800])]]));
    const drawn = (of: string): string => el.querySelector(`.plot ${of}`)?.getAttribute('d') ?? '';
    const [, left, right] = /^M(\d+) [\d.]+H([\d.]+)$/.exec(drawn('.live-used')) ?? [];
    expect(Number(right) - Number(left)).toBeGreaterThan(600);
    expect(drawn('.live-used-area')).toBe(`${drawn('.live-used')}L${right} 43.5L${left}.0 43.5Z`);
  });

  it('calls the memory of a process by its name', () => {
    const curves = new Map([['memory/resident', curve([800, 900])]]);
    expect(legend(shown(curves))).toEqual(['resident 900 MiB', 'peak 900 MiB']);
    expect(liveMemory(curves)?.peakIsKept).toBe(false);
    curves.set('memory/resident_peak', curve([950, 950]));
    expect(legend(shown(curves))).toEqual(['resident 900 MiB', 'peak 950 MiB']);
    expect(liveMemory(curves)?.peakIsKept).toBe(true);
  });

  it('follows a run from a simulated GPU to the process and back by what was measured last', () => {
    const curves = onCuda().set('memory/resident', curve([800, 900, 900, 900], 1));
    expect(liveMemory(curves)?.of).toBe('process');
    curves.set('memory/resident', curve([800], 1));
    expect(liveMemory(curves)?.of).toBe('allocator');
  });

  it('is that of the first rank where ranks compute the steps, until they are back', () => {
    const curves = new Map([
      ['memory/resident', curve([800, 900])],
      ['parallel/rank 0 memory_mib', curve([500 / MIB, 520 / MIB, 510 / MIB], 21)],
    ]);
    expect(legend(shown(curves))).toEqual(['held 510 MiB', 'peak 520 MiB']);
    expect(shown(curves).textContent).toContain('rank 0');
    curves.set('memory/resident', curve([800, 900, 910, 920, 930, 940]));
    expect(legend(shown(curves))).toEqual(['resident 940 MiB', 'peak 940 MiB']);
  });

  it('says that a GPU is simulated', () => {
    const found = liveMemory(onCuda(), true);
    const strip = liveMemoryStrip(44);
    strip.update(found);
    expect(found?.of).toBe('card');
    expect(legend(strip.el)).toContain('fragmentation 16 MiB');
    expect(strip.el.querySelector('.wb-reading')?.textContent).toBe('simulated GPU');
    expect(strip.el.querySelector('.wb-reading')?.getAttribute('title')).toMatch(/^Predicted: /);
  });

  it('keeps to the newest samples', () => {
    const values = Array.from({ length: MOST_SAMPLES + 100 }, (_, i) => i);
    const found = liveMemory(new Map([['memory/resident', curve(values)]]));
    expect(found?.steps.length).toBe(MOST_SAMPLES);
    expect(found?.used[0]).toBe(100 * MIB);
    expect(found?.peak).toBe((MOST_SAMPLES + 99) * MIB);
  });

  it('leaves out a column that does not belong to the samples', () => {
    const curves = onCuda().set('memory/reserved', curve([128]));
    expect(legend(shown(curves))).not.toContain('reserved 128 MiB');
  });

  it('reads a sample by keyboard and comes back to now', () => {
    const el = shown(onCuda());
    const press = (key: string): boolean =>
      el.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
    expect(press('ArrowLeft')).toBe(false);
    expect(el.querySelector('.wb-reading')?.textContent).toBe('step 11');
    expect(legend(el)[0]).toBe('allocated 120 MiB');
    press('Home');
    expect(legend(el)[1]).toBe('reserved 128 MiB');
    press('Escape');
    expect(el.querySelector('.wb-reading')?.textContent).toBe('caching allocator');
    expect(press('x')).toBe(true);
  });

  it('has its figures in a table, newest first', () => {
    const el = shown(onCuda());
    el.querySelector<HTMLButtonElement>('.wb-table-button')?.click();
    const rows = [...el.querySelectorAll('tr')].map((row) =>
      [...row.children].map((cell) => cell.textContent),
    );
    expect(rows[0]).toEqual(['step', 'allocated', 'reserved', 'fragmentation']);
    expect(rows[1]).toEqual(['21', '110 MiB', '256 MiB', '16 MiB']);
    expect(rows).toHaveLength(4);
  });

  it('draws only when there is something new', () => {
    const strip = liveMemoryStrip(44);
    strip.update(liveMemory(onCuda()));
    const drawn = strip.el.querySelector('.live-used-area');
    strip.update(liveMemory(onCuda()));
    expect(strip.el.querySelector('.live-used-area')).toBe(drawn);
    strip.update(liveMemory(onCuda().set('memory/allocated', curve([1, 2, 3, 4]))));
    expect(strip.el.querySelector('.live-used-area')).not.toBe(drawn);
  });
});
