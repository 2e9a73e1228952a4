/** A panel that is scrolled away, or in a tab behind. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Mounted } from './mounted';

type Notify = (entries: { isIntersecting: boolean }[]) => void;

let watched: { element: Element; notify: Notify }[] = [];
let panel: Mounted;

beforeEach(() => {
  vi.useFakeTimers();
  watched = [];
  vi.stubGlobal(
    'IntersectionObserver',
    class {
      constructor(private readonly notify: Notify) {}
      observe(element: Element): void {
        watched.push({ element, notify: this.notify });
      }
      disconnect(): void {
        watched = watched.filter(({ notify }) => notify !== this.notify);
      }
    },
  );
});

afterEach(() => {
  panel.dispose();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function comesIntoSight(isIntersecting: boolean): void {
  for (const { notify } of watched)
    notify([{ isIntersecting: !isIntersecting }, { isIntersecting }]);
}

it('is not drawn, and is up to date at once when it comes back', async () => {
  panel = await Mounted.panel({ step: 1 });
  const step = (): string | null => panel.find('[role=progressbar]').getAttribute('aria-valuenow');
  expect(watched.map(({ element }) => element)).toEqual([panel.find('.wb-panel')]);
  await panel.say({ step: 2 });
  expect(step()).toBe('2');
  comesIntoSight(false);
  const change = vi.fn();
  const observer = new MutationObserver(change);
  observer.observe(panel.host, {
    subtree: true,
    childList: true,
    attributes: true,
    characterData: true,
  });
  for (const at of [3, 4, 5]) await panel.say({ step: at });
  expect(change).not.toHaveBeenCalled();
  expect(step()).toBe('2');
  comesIntoSight(true);
  await panel.settle();
  expect(step()).toBe('5');
  observer.disconnect();
});

it('is watched no more once it is closed', async () => {
  panel = await Mounted.panel();
  panel.dispose();
  expect(watched).toEqual([]);
});
