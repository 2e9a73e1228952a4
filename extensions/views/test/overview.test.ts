import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  OverviewView,
  readOverview,
  within,
  type Overview,
  type EventRange,
} from '../src/overview';
import { highestIn, moved, positionOf, timeOf } from '../src/overview/model';

HTMLCanvasElement.prototype.getContext = () => null;

/** Four points over 4,000 events and 8 ms; the clock runs three times slower in the first half. */
const SEEN: Overview = {
  title: 'long.pickle',
  device: 'cuda:0',
  devices: [0],
  num_events: 4000,
  duration_us: 8000,
  peak_position: 2500,
  peak_bytes: 3 * 2 ** 20,
  proposed: [2000, 3000],
  most: 1500,
  position: [0, 1000, 2000, 3000],
  time_us: [0, 3000, 6000, 7000],
  bytes: [1, 2 * 2 ** 20, 3 * 2 ** 20, 2 ** 20],
};

const shown: OverviewView[] = [];
afterEach(() => {
  for (const view of shown.splice(0)) view.dispose();
});

function open(seen = SEEN, range: EventRange | null = null, isOpen = false) {
  const events = { open: vi.fn(), back: vi.fn() };
  const view = new OverviewView(seen, events);
  shown.push(view);
  document.body.append(view.element);
  view.start();
  view.show(seen, range, isOpen);
  const find = <E extends HTMLElement>(selector: string): E =>
    view.element.querySelector(selector) as E;
  const named = (name: string): HTMLElement =>
    [...view.element.querySelectorAll<HTMLElement>('button')].find((one) =>
      one.textContent?.startsWith(name),
    ) as HTMLElement;
  const slider = (label: string): HTMLElement => find(`[role=slider][aria-label^='${label}']`);
  const press = (on: HTMLElement, key: string, more: KeyboardEventInit = {}): void => {
    on.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...more }));
  };
  const ends = (): string[] =>
    [...view.element.querySelectorAll('input')].map(({ value }) => value);
  return { events, find, named, slider, press, ends };
}

describe('a recording from afar', () => {
  it('knows the clock between two points, and the way back', () => {
    expect([0, 500, 1000, 2500, 4000].map((at) => timeOf(SEEN, at))).toEqual([
      0, 1500, 3000, 6500, 8000,
    ]);
    expect([0, 1500, 6500, 8000].map((at) => positionOf(SEEN, at))).toEqual([0, 500, 2500, 4000]);
  });

  it('keeps a range inside, in order and never empty', () => {
    expect(within(SEEN, 300, 100)).toEqual({ start: 100, end: 300 });
    expect(within(SEEN, -5, 9e9)).toEqual({ start: 0, end: 4000 });
    expect(within(SEEN, 4000, 4000)).toEqual({ start: 3999, end: 4000 });
    expect(moved(SEEN, { start: 3000, end: 3900 }, 500)).toEqual({ start: 3100, end: 4000 });
    expect(highestIn(SEEN, { start: 0, end: 999 })).toBe(1);
    expect(highestIn(SEEN, { start: 900, end: 1100 })).toBe(2 * 2 ** 20);
  });

  it('refuses what is none', () => {
    expect(readOverview(SEEN)).toEqual(SEEN);
    for (const wrong of [null, 3, {}, { ...SEEN, bytes: [1] }, { ...SEEN, most: 'all' }])
      expect(() => readOverview(wrong)).toThrow('reload the page');
  });
});

describe('choosing a range', () => {
  it('begins with what is proposed, and opens it', () => {
    const { events, find, named, ends } = open();
    expect(find('.wv-summary').textContent).toContain('4,000 events over 8.0 ms on cuda:0');
    expect(ends()).toEqual(['2,000', '3,000']);
    expect(find('.wv-chosen').textContent).toBe('1,000 events over 1.0 ms, at most 3.0 MiB live');
    named('Open this range').click();
    expect(events.open).toHaveBeenCalledWith({ start: 2000, end: 3000 });
    expect(named('Back').hidden).toBe(true);
    expect(named('All of it').hidden).toBe(true);
  });

  it('moves its ends by keys, which never pass each other', () => {
    const { events, slider, press, ends } = open();
    const first = slider('First event');
    press(first, 'ArrowRight');
    expect(ends()).toEqual(['2,010', '3,000']);
    press(first, 'ArrowRight', { shiftKey: true });
    expect(first.getAttribute('aria-valuetext')).toBe('event 2,210, at 6.2 ms');
    press(first, 'End');
    expect(ends()).toEqual(['2,999', '3,000']);
    press(slider('Event after the range'), 'PageUp');
    press(slider('The whole range'), 'Home');
    expect(ends()).toEqual(['0', '401']);
    press(first, 'Enter');
    expect(events.open).toHaveBeenCalledWith({ start: 0, end: 401 });
  });

  it('takes numbers, and puts back what is none', () => {
    const { find, ends } = open();
    const boxes = [...find('.wv-choice').querySelectorAll('input')];
    const type = (at: number, text: string): void => {
      const box = boxes[at] as HTMLInputElement;
      box.value = text;
      box.dispatchEvent(new Event('change'));
    };
    type(0, '1,234');
    expect(ends()).toEqual(['1,234', '3,000']);
    type(1, 'many');
    type(0, '');
    expect(ends()).toEqual(['1,234', '3,000']);
  });

  it('says why too long a range is not opened', () => {
    const { events, find, named, slider, press } = open();
    press(slider('First event'), 'Home');
    expect(find('.wv-refused').textContent).toBe(
      'At most 1,500 events are shown at once: choose a shorter range.',
    );
    named('Open this range').click();
    press(slider('First event'), 'Enter');
    expect(events.open).not.toHaveBeenCalled();
    named('The end').click();
    expect(find('.wv-refused').hidden).toBe(true);
    named('Open this range').click();
    expect(events.open).toHaveBeenCalledWith({ start: 3000, end: 4000 });
  });

  it('goes back to what is open, whose range it begins with', () => {
    const { events, named, ends, press, find } = open(SEEN, { start: 7, end: 99 }, true);
    expect(ends()).toEqual(['7', '99']);
    named('Back').click();
    press(find('[role=slider]'), 'Escape');
    expect(events.back).toHaveBeenCalledTimes(2);
  });

  it('has no clock where the file has none, and all of it where it is short', () => {
    const { find, named, ends } = open({ ...SEEN, duration_us: 0, most: 9000 });
    expect(find('.wv-seg').hidden).toBe(true);
    expect(ends()).toEqual(['0', '4,000']);
    expect(find('.wv-chosen').textContent).toBe('4,000 events, at most 3.0 MiB live');
    expect(named('All of it').hidden).toBe(false);
  });
});
