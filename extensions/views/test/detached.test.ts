/** Views that are filled outside the page, as JupyterLab does with cells far from view. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { mount as mountDiff } from '../src/diff';
import { mount as mountFlow } from '../src/flow';
import { mount as mountGraph } from '../src/graph';
import { mount as mountMemory } from '../src/memory';
import type { Dispose, Store } from '../src/store';
import { diffOf, EARLY_EXIT } from './diff-data';
import { flowOf } from './flow-data';
import { graphOf, residual } from './graph-data';
import { OPTIONS, STEP } from './memory-data';

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

const storeOf = <S>(state: S): Store<S, never> => ({
  get: () => state,
  subscribe: () => () => {},
  send: () => Promise.resolve(),
});

const VIEWS: Record<string, (host: HTMLElement) => Dispose> = {
  graph: (host) => mountGraph(host, storeOf({ record: graphOf(residual(2)), error: null })),
  diff: (host) => mountDiff(host, storeOf({ record: diffOf(EARLY_EXIT), error: null })),
  memory: (host) => mountMemory(host, storeOf({ record: STEP, error: null }), OPTIONS),
  flow: (host) =>
    mountFlow(host, storeOf({ record: flowOf({ body: [1, 2], head: [0, 4] }), error: null })),
};

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
