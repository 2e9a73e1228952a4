/** Views that are filled outside the page, as JupyterLab does with cells far from view. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Dispose } from '../src/store';
import { VIEWS } from './every-view';

const FALLBACK = '#888';
const SIZE = { width: 1300, height: 600 };
let used: string[] = [];
let resizes: (() => void)[] = [];
let end: Dispose = () => {};

/** A canvas that draws nothing and notes every colour it is given. */
function context(canvas: HTMLCanvasElement): unknown {
  return new Proxy({} as Record<string, unknown>, {
    get: (target, name) => {
      if (name === 'canvas') return canvas;
      if (name in target) return target[name as string];
      return () => ({ width: 10, addColorStop: () => {}, setTransform: () => {} });
    },
    set: (target, name, value) => {
      target[name as string] = value;
      if (name === 'fillStyle' || name === 'strokeStyle') used.push(String(value));
      return true;
    },
  });
}

beforeEach(() => {
  used = [];
  resizes = [];
  vi.stubGlobal(
    'DOMMatrix',
    class {
      scale = (): this => this;
    },
  );
  vi.stubGlobal(
    'ResizeObserver',
    class {
      constructor(call: () => void) {
        resizes.push(call);
      }
      observe(): void {}
      disconnect(): void {}
    },
  );
  vi.spyOn(HTMLCanvasElement.prototype, 'getContext').mockImplementation(function (
    this: HTMLCanvasElement,
  ) {
    return context(this) as never;
  });
  for (const [name, size] of [
    ['clientWidth', SIZE.width],
    ['clientHeight', SIZE.height],
  ] as const)
    vi.spyOn(Element.prototype, name, 'get').mockImplementation(function (this: Element) {
      return this.isConnected ? size : 0;
    });
});

afterEach(() => {
  end();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  document.body.replaceChildren();
});

describe.each(Object.entries(VIEWS))('the %s view filled outside the page', (_, mount) => {
  it('draws nothing before it is in the page, and then in the colours of the page', async () => {
    const host = document.createElement('div');
    end = mount(host);
    await new Promise(requestAnimationFrame);
    expect(used).toEqual([]);
    document.body.append(host);
    for (const call of resizes) call();
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    expect(used.length).toBeGreaterThan(0);
    expect(used).not.toContain(FALLBACK);
    const { wbTheme } = host.querySelector<HTMLElement>('.wv-view')?.dataset ?? {};
    expect(wbTheme).toBe('light');
  });
});

describe('a graph in a tab behind', () => {
  it('keeps the panels that a person chose', () => {
    const host = document.body.appendChild(document.createElement('div'));
    end = VIEWS['graph']?.(host) ?? end;
    const resized = (): void => {
      for (const call of resizes) call();
    };
    const details = [...host.querySelectorAll('button')].find(
      (one) => one.textContent === 'Details',
    );
    details?.click();
    expect(details?.getAttribute('aria-pressed')).toBe('false');
    host.remove();
    resized();
    document.body.append(host);
    resized();
    expect(details?.getAttribute('aria-pressed')).toBe('false');
  });
});
