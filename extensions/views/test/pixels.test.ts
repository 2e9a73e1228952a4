/** Canvases on a monitor with other pixels: another one, or the page at another zoom. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Dispose } from '../src/store';
import { VIEWS } from './every-view';

const SIZE = { width: 1300, height: 600 };
let heard: { query: string; notify: () => void }[] = [];
let end: Dispose = () => {};

/** The page's answer to a query, which holds for the ratio of now alone. */
function played(query: string): object {
  const ratio = devicePixelRatio;
  return {
    matches: query === `(resolution:${ratio}dppx)`,
    addEventListener: (_: string, notify: () => void, options?: AddEventListenerOptions) => {
      const one = { query, notify };
      heard.push(one);
      options?.signal?.addEventListener('abort', () => (heard = heard.filter((o) => o !== one)));
    },
    removeEventListener: () => undefined,
  };
}

/** Another ratio: listeners of the one before are notified. */
function move(ratio: number): void {
  const query = `(resolution:${devicePixelRatio}dppx)`;
  const now = heard.filter((one) => one.query === query);
  heard = heard.filter((one) => one.query !== query);
  vi.stubGlobal('devicePixelRatio', ratio);
  for (const { notify } of now) notify();
}

beforeEach(() => {
  heard = [];
  vi.stubGlobal('devicePixelRatio', 1);
  vi.stubGlobal('matchMedia', played);
  vi.stubGlobal(
    'DOMMatrix',
    class {
      scale = (): this => this;
    },
  );
  vi.stubGlobal('requestAnimationFrame', (draw: () => void) => (draw(), 0));
  vi.spyOn(HTMLCanvasElement.prototype, 'getContext').mockImplementation(
    () =>
      new Proxy({} as Record<string, unknown>, {
        get: (target, name) =>
          target[name as string] ??
          (() => ({ width: 10, addColorStop: () => {}, setTransform: () => {} })),
      }) as never,
  );
  vi.spyOn(Element.prototype, 'clientWidth', 'get').mockReturnValue(SIZE.width);
  vi.spyOn(Element.prototype, 'clientHeight', 'get').mockReturnValue(SIZE.height);
});

afterEach(() => {
  end();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  document.body.replaceChildren();
});

for (const [name, mount] of Object.entries(VIEWS)) {
  it(`the ${name} is drawn with the pixels of the monitor that it is moved to`, () => {
    const host = document.createElement('div');
    document.body.append(host);
    end = mount(host);
    const canvas = host.querySelector<HTMLCanvasElement>(CANVAS[name] ?? 'canvas');
    const width = canvas?.width ?? 0;
    expect(width).toBeGreaterThan(100);
    for (const ratio of [2, 3, 1, 1.5]) {
      move(ratio);
      expect(canvas?.width).toBe(Math.round(width * ratio));
    }
    end();
    end = () => {};
    expect(heard).toEqual([]);
  });
}

const CANVAS: Record<string, string> = {
  graph: 'canvas.wv-surface',
  diff: 'canvas.wv-surface',
  memory: 'canvas.wv-timeline',
};
