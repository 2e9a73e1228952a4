import { afterEach, describe, expect, it } from 'vitest';
import { holdersAt, peakPlace } from '../src/memory/blocks';
import { peakSentence } from '../src/memory/sentence';
import { matcher } from '../src/memory/filter';
import { LiveBlocks } from '../src/memory/live';
import { isLive, readSeries } from '../src/memory/series';
import { mount, type MemoryViewState } from '../src/memory';
import { ACTIVATIONS, KIB, OPTIONS, PARAMETERS, recordOf, STEP, STRINGS } from './memory-data';

// jsdom has no canvas; the views draw nothing there and everything else works.
HTMLCanvasElement.prototype.getContext = () => null;

const mounted: (() => void)[] = [];
afterEach(() => {
  for (const dispose of mounted.splice(0)) dispose();
});

describe('series', () => {
  it('counts a block from the position after its allocation up to the event that frees it', () => {
    expect([...readSeries(STEP).total].map((bytes) => bytes / KIB)).toEqual([20, 80, 80, 100, 40]);
    expect([0, 1, 3, 4].map((position) => isLive(STEP, 1, position))).toEqual([
      false,
      true,
      true,
      false,
    ]);
  });

  it('agrees with the blocks that are live at every position', () => {
    const series = readSeries(STEP);
    for (let position = 0; position < series.length; position += 1) {
      const { bytes } = holdersAt(STEP, new LiveBlocks(STEP), position, () => true, 10);
      expect(bytes).toBe(series.total[position]);
    }
  });
});

describe('the peak', () => {
  it('is described in one sentence', () => {
    expect(peakPlace(STEP)).toBe('backward of body.0');
    expect(peakSentence(STEP, readSeries(STEP))).toBe(
      'Peak 100 KiB in backward of body.0: activations 60 %, parameters 20 %, gradients 20 %.',
    );
  });
});

describe('holders', () => {
  const at = (query: string, hidden: number[] = []): number[] =>
    holdersAt(STEP, new LiveBlocks(STEP), 3, matcher(STEP, { hidden: new Set(hidden), query }), 10)
      .blocks;

  it('come largest first', () => expect(at('')).toEqual([1, 0, 2]));
  it('can be found by module, operation, name, category and size', () => {
    expect(at('body.0')).toEqual([1, 2]);
    expect(at('relu')).toEqual([1]);
    expect(at('fc.weight')).toEqual([0]);
    expect(at('gradients')).toEqual([2]);
    expect(at('>50kib')).toEqual([1]);
    expect(at('body.0 <50KiB')).toEqual([2]);
  });
  it('leave out hidden categories', () => expect(at('', [ACTIVATIONS])).toEqual([0, 2]));
});

describe('the view', () => {
  function shown(state: MemoryViewState): HTMLElement {
    const host = document.createElement('div');
    document.body.append(host);
    const store = { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() };
    mounted.push(mount(host, store, OPTIONS));
    return host;
  }
  const press = (host: HTMLElement, key: string): void => {
    host
      .querySelector('canvas')
      ?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  };

  const frame = (): Promise<number> => new Promise(requestAnimationFrame);

  it('opens at the peak, follows the scrubber and comes back with End', async () => {
    const host = shown({ record: STEP, error: null });
    expect(host.textContent).toContain('Who holds memory at the peak');
    press(host, 'Home');
    await frame();
    expect(host.textContent).toContain('Who holds memory after event 0');
    expect(host.querySelectorAll('.wv-holders tbody tr')).toHaveLength(1);
    press(host, 'End');
    await frame();
    expect(host.querySelectorAll('.wv-holders tbody tr')).toHaveLength(3);
  });

  it('shows a block that is selected with the keyboard', () => {
    const host = shown({ record: STEP, error: null });
    const row = host.querySelector<HTMLElement>('[data-block="1"]');
    row?.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    const inspector = host.querySelector('.wv-inspector');
    expect(inspector?.querySelector('h2')?.textContent).toBe('aten.relu');
    expect(inspector?.textContent).toContain('61,440 B');
  });

  it('says when nothing was allocated, when there is nothing yet, and what failed', () => {
    const empty = recordOf([[-1, -1, 2 * KIB, PARAMETERS, 0, 3, 5]], 0, -1);
    expect(shown({ record: empty, error: null }).textContent).toContain(
      'Nothing was allocated or freed on cpu; 2.0 KiB were there before and stayed.',
    );
    expect(shown({ record: null, error: null }).textContent).toContain('No memory recording yet');
    const failed = shown({ record: STEP, error: 'The file is cut short.' });
    expect(failed.querySelector('[role=alert]')?.textContent).toContain('The file is cut short.');
    expect(failed.querySelectorAll('.wv-holders tbody tr')).toHaveLength(3);
  });

  it('puts hostile names on the page as text on one line', () => {
    const strings = [...STRINGS];
    strings[3] = `<script>x</script>\n${'n'.repeat(10_000)}`;
    const host = shown({ record: { ...STEP, strings }, error: null });
    expect(host.querySelector('script')).toBeNull();
    const cell = host.querySelector('[data-block="0"] td');
    expect(cell?.textContent).toMatch(/^<script>x<\/script> n+…n+$/);
    expect(cell?.textContent?.length).toBeLessThan(60);
  });

  it('leaves nothing behind', () => {
    const host = document.createElement('div');
    let listeners = 0;
    const store = {
      get: () => ({ record: STEP, error: null }),
      subscribe: () => {
        listeners += 1;
        return () => (listeners -= 1);
      },
      send: () => Promise.resolve(),
    };
    const dispose = mount(host, store, OPTIONS);
    dispose();
    expect(host.childElementCount).toBe(0);
    expect(listeners).toBe(0);
  });
});
