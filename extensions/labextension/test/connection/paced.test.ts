import {
  curveOf,
  type ExperimentModel,
  type KernelModel,
  type KernelStore,
} from '@torch-workbench/views';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { PacedStore } from '../../src/connection/paced';
import type { IWorkbenchSettings } from '../../src/tokens';

function curve(length: number) {
  const steps = Int32Array.from({ length }, (_, i) => i);
  return curveOf(
    steps,
    Float32Array.from(steps, (step) => 2 * step),
  );
}

function source(length: number) {
  const listeners = new Set<() => void>();
  const one = {
    state: { id: 'a' },
    curves: new Map([
      ['train/loss', curve(length)],
      ['memory/allocated', curve(length)],
    ]),
    chart: null,
  };
  let model = {
    connection: 'live',
    detail: '',
    kernel: null,
    experiments: new Map([['a', one as unknown as ExperimentModel]]),
    gone: new Set(),
  } as KernelModel;
  const store = {
    get: () => model,
    subscribe: (listener: () => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  return {
    store: store as unknown as KernelStore,
    listeners,
    change: () => {
      model = { ...model };
      listeners.forEach((listener) => listener());
    },
  };
}

function settings(refreshInterval: number, maxPoints: number): IWorkbenchSettings {
  const changed = { connect: () => true, disconnect: () => true };
  return { refreshInterval, maxPoints, changed } as unknown as IWorkbenchSettings;
}

describe('PacedStore', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('notifies of a burst of changes once an interval, and of the last one', () => {
    const { store, change } = source(3);
    const paced = new PacedStore(store, settings(500, 100));
    const seen: KernelModel[] = [];
    paced.subscribe(() => seen.push(paced.get()));
    change();
    vi.advanceTimersByTime(1);
    expect(seen).toHaveLength(1);
    for (let i = 0; i < 20; i += 1) {
      change();
      vi.advanceTimersByTime(10);
    }
    expect(seen).toHaveLength(1);
    vi.advanceTimersByTime(500);
    expect(seen).toHaveLength(2);
    expect(seen[1]).toBe(store.get());
  });

  it('releases its source and its timer when it is disposed', () => {
    const { store, change, listeners } = source(3);
    const paced = new PacedStore(store, settings(100, 100));
    const notified = vi.fn();
    paced.subscribe(notified);
    change();
    paced.dispose();
    vi.advanceTimersByTime(1000);
    expect(notified).not.toHaveBeenCalled();
    expect(listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('keeps no more points than the setting says, first and last among them', () => {
    const { store } = source(10_000);
    const shown = new PacedStore(store, settings(100, 500)).get();
    const thinned = shown.experiments.get('a')?.curves.get('train/loss');
    const length = thinned?.length ?? 0;
    expect(length).toBeGreaterThan(300);
    expect(length).toBeLessThanOrEqual(500);
    expect(thinned?.steps[0]).toBe(0);
    expect(thinned?.steps[length - 1]).toBe(9999);
    expect(thinned?.values[length - 1]).toBe(19998);
  });

  it('leaves memory whole, of which the newest points alone are drawn', () => {
    const shown = new PacedStore(source(10_000).store, settings(100, 500)).get();
    expect(shown.experiments.get('a')?.curves.get('memory/allocated')?.length).toBe(10_000);
  });
});
