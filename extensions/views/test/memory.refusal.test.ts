import { afterEach, describe, expect, it, vi } from 'vitest';
import { mount } from '../src/memory';
import { Model } from '../src/memory/model';
import { roomOf, type Room } from '../src/memory/refusal-room';
import { lastRefusal, obstaclesOf, refusalAt, refusalSentence } from '../src/memory/refusals';
import type { MemoryColumns } from '../src/memory/series';
import { CUDA, OPTIONS } from './memory-data';

HTMLCanvasElement.prototype.getContext = () => null;

const mounted: (() => void)[] = [];
afterEach(() => {
  for (const dispose of mounted.splice(0)) dispose();
});

const MIB = 2 ** 20;
const REMEDY = { peak_bytes: 20 * MIB, basis: 'this step run again with it' };

/** Event 5 asks for 64 MiB and is refused; blocks 0 and 1 are in the way. */
const REFUSED: MemoryColumns = {
  ...CUDA,
  experiment: 'digits',
  event_kind: [0, 0, 1, 2, 4, 8],
  segment_end: [-1, 4],
  block_end: [-1, -1, 3],
  oom_event: [5],
  oom_largest: [4 * MIB],
  obstacle_oom: [0, 0],
  obstacle_block: [1, 0],
  remedies: [
    { ...REMEDY, name: 'expandable segments', fits: true, cost: 'Nothing.', code: 'a = 1\nb = 2' },
    { ...REMEDY, name: 'bf16', fits: false, peak_bytes: -1, cost: 'Rounding.', code: 'exp.modes' },
  ],
};

describe('a refused request', () => {
  it('is the end of a recording if nothing was allocated after it', () => {
    expect(lastRefusal(REFUSED)).toBe(0);
    expect(lastRefusal({ ...CUDA, oom_event: [0] })).toBeNull();
    expect(lastRefusal({ ...CUDA, oom_event: [] })).toBeNull();
    expect(new Model(REFUSED).view.scrubber).toBe(6);
    expect(new Model({ ...CUDA, oom_event: [0] }).view.scrubber).toBe(CUDA.peak_event + 1);
  });

  it('is at the position just after it, with what is in its way, the largest first', () => {
    expect([4, 5, 6].map((position) => refusalAt(REFUSED, position))).toEqual([null, null, 0]);
    expect(obstaclesOf(REFUSED, 0)).toEqual([0, 1]);
    expect(obstaclesOf(REFUSED, null)).toEqual([]);
  });

  it('is described in a sentence, which says only what is known', () => {
    expect(refusalSentence({ ...REFUSED, card: 'L40' }, 0)).toBe(
      'Out of memory in backward on L40: 64.0 MiB requested; 1.0 MiB free on the device, 4.0 MiB in the largest free block.',
    );
    expect(refusalSentence({ ...REFUSED, oom_free: [-1], oom_largest: [-1] }, 0)).toBe(
      'Out of memory in backward: 64.0 MiB requested.',
    );
  });
});

describe('the room that there would be', () => {
  const roomOfRow = (record: MemoryColumns, blocks: number[]): Room | null =>
    roomOf(record, new Model(record).moment(6), 0, blocks);

  it('is a run of neighbours: free memory and the blocks between it', () => {
    // The segment of 20 MiB holds block 0, free memory, and block 1 from 12 MiB on.
    const record = { ...REFUSED, oom_bytes: [12 * MIB] };
    expect(roomOfRow(record, [1])).toEqual({
      parts: [
        { category: -1, bytes: 4 * MIB },
        { category: 4, bytes: 4 * MIB },
        { category: -1, bytes: 4 * MIB },
      ],
      bytes: 12 * MIB,
      emptied: false,
      exact: true,
    });
  });

  it('is what the device has left, with the segments that are then empty', () => {
    const record = { ...REFUSED, oom_bytes: [21 * MIB] };
    const room = roomOfRow(record, [0, 1]);
    expect([room?.bytes, room?.emptied, room?.exact]).toEqual([21 * MIB, true, true]);
    expect(room?.parts[room.parts.length - 1]).toEqual({ category: -1, bytes: MIB });
    const pages = { ...record, segment_expandable: [1, 0] };
    expect(roomOfRow(pages, [0, 1])?.exact).toBe(false);
  });

  it('is not known where a block is in no segment, or none is in the way', () => {
    expect(roomOfRow({ ...REFUSED, block_address: [5, 6, 7] }, [0])).toBeNull();
    expect(roomOfRow(REFUSED, [])).toBeNull();
  });
});

function shown(record: MemoryColumns): HTMLElement {
  const host = document.createElement('div');
  document.body.append(host);
  const state = { record, error: null };
  mounted.push(
    mount(
      host,
      { get: () => state, subscribe: () => () => {}, send: () => Promise.resolve() },
      OPTIONS,
    ),
  );
  return host;
}

const press = (host: HTMLElement, key: string): void => {
  host.querySelector('canvas')?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
};
const frame = (): Promise<number> => new Promise(requestAnimationFrame);
const inspector = (host: HTMLElement): HTMLElement =>
  host.querySelector('.wv-inspector') as HTMLElement;

describe('the view of a refused request', () => {
  it('opens at it and says what was in the way and what helps', async () => {
    const host = shown(REFUSED);
    await frame();
    expect(host.querySelector('.wv-peak')?.textContent).toMatch(/^Out of memory in backward: 64/);
    const said = inspector(host).textContent;
    expect(said).toContain('✕ Out of memory');
    expect(said).toContain('these 2 blocks were not there');
    expect(said).toContain('1 of 2 tried would do');
    const rows = [...inspector(host).querySelectorAll('.wv-remedies tbody')];
    expect(rows[0]?.textContent).toMatch(
      /^cheapest that fitsexpandable segments✓ yes20\.0 MiBNothing\./,
    );
    expect(rows[1]?.textContent).toMatch(/^bf16✕ no–Rounding\./);
    expect(rows[0]?.querySelector('pre')?.textContent).toBe('a = 1\nb = 2');
  });

  it('chooses a block that is in the way, comes back, and is left by the scrubber', async () => {
    const host = shown(REFUSED);
    await frame();
    inspector(host).querySelector<HTMLElement>('.wv-obstacles button')?.click();
    expect(inspector(host).querySelector('h2')?.textContent).toBe('fc.weight');
    inspector(host).querySelector<HTMLElement>('.wv-back button')?.click();
    expect(inspector(host).querySelector('h2')?.textContent).toBe('✕ Out of memory');
    press(host, 'Home');
    await frame();
    expect(inspector(host).querySelector('h2')?.textContent).toBe('test');
    press(host, 'o');
    await frame();
    expect(inspector(host).querySelector('h2')?.textContent).toBe('✕ Out of memory');
  });

  it('copies the code of a remedy, or says that it could not', async () => {
    const host = shown(REFUSED);
    await frame();
    const copy = inspector(host).querySelector<HTMLElement>('.wv-copy button');
    const written: string[] = [];
    const clipboard = { writeText: (text: string) => Promise.resolve(void written.push(text)) };
    vi.stubGlobal('navigator', { clipboard });
    copy?.click();
    await vi.waitFor(() => expect(copy?.textContent).toBe('Copied'));
    expect(written).toEqual(['a = 1\nb = 2']);
    vi.stubGlobal('navigator', {});
    copy?.click();
    await vi.waitFor(() => expect(copy?.textContent).toBe('Not copied'));
    vi.unstubAllGlobals();
  });
});

describe('a prediction', () => {
  const predicted: MemoryColumns = {
    ...CUDA,
    oom_event: [],
    is_predicted: true,
    card: 'RTX 4090',
    card_bytes: 23 * 2 ** 30,
    settings: 'expandable_segments:True',
    peak_interval: [20 * MIB, 24 * MIB],
    reasons: ['Workspaces of the card are not known.'],
  };

  it('says on which GPU, the bounds of the peak and why it may be off', () => {
    const host = shown(predicted);
    const pill = host.querySelector('.wv-bar .wv-pill');
    expect(pill?.textContent).toBe('predicted · RTX 4090');
    const said = inspector(host).textContent ?? '';
    expect(said).toContain('Reserved at most20.0 MiB to 24.0 MiB');
    expect(said).toContain('expandable_segments:True');
    expect(inspector(host).querySelector('li')?.textContent).toBe(predicted.reasons[0]);
  });

  it('is not said of a recording', () => {
    const host = shown(CUDA);
    expect(host.querySelector<HTMLElement>('.wv-bar .wv-pill')?.hidden).toBe(true);
    expect(inspector(host).textContent).not.toContain('Prediction');
  });
});
