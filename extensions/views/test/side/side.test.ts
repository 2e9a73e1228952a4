import type { CaptureInfo } from '@torch-workbench/records';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { KernelStore } from '../../src/kernel';
import { mountCaptures, mountExperiments, mountModes } from '../../src/side';
import { FakeKernel, state } from '../kernel/fake';

let kernel: FakeKernel;
let store: KernelStore;
let host: HTMLElement;
let dispose: () => void = () => undefined;

const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(20);

beforeEach(async () => {
  vi.useFakeTimers();
  kernel = new FakeKernel();
  store = new KernelStore({ connect: kernel.connect });
  await settle();
  kernel.hello(['e1', 'e2']);
  host = document.body.appendChild(document.createElement('div'));
});

afterEach(() => {
  dispose();
  expect(host.childElementCount).toBe(0);
  host.remove();
  store.dispose();
  vi.useRealTimers();
});

describe('experiments', () => {
  it('lists them, the newest first, with their state in words, and selects one', async () => {
    kernel.say('state', { experiment: 'e1', state: state({ status: 'training', step: 12 }) });
    const done = state({ id: 'e2', name: 'base', status: 'finished', best_accuracy: 0.784 });
    kernel.say('state', { experiment: 'e2', state: done });
    let current = 'e1';
    const onSelect = vi.fn((id: string) => (current = id));
    dispose = mountExperiments(host, store, { current: () => current, onSelect });
    const rows = [...host.querySelectorAll<HTMLElement>('[role=option]')];
    expect(rows.map((row) => row.textContent)).toEqual([
      'basebest 78.4 %finished',
      'expstep 12 / 30training',
    ]);
    expect(rows.map((row) => row.getAttribute('aria-selected'))).toEqual(['false', 'true']);
    rows[0]?.click();
    expect(onSelect).toHaveBeenCalledWith('e2');
    expect(rows.map((row) => row.getAttribute('aria-selected'))).toEqual(['true', 'false']);
    kernel.say('removed', { experiment: 'e1' });
    await settle();
    expect(host.querySelectorAll('[role=option]')).toHaveLength(1);
  });

  it('halts and goes on with any of them, chosen or not, and says why one was paused', async () => {
    const because = 'step 812: paused, because its cell ran again';
    kernel.say('state', { experiment: 'e1', state: state({ status: 'training', step: 12 }) });
    const old = state({ id: 'e2', name: 'old', status: 'paused', step: 812, message: because });
    kernel.say('state', { experiment: 'e2', state: old });
    const onSelect = vi.fn();
    const onFailure = vi.fn();
    dispose = mountExperiments(host, store, { current: () => 'e1', onSelect, onFailure });
    const offered = (): (string | null)[] =>
      [...host.querySelectorAll('.wb-acts button:not([hidden])')].map((one) =>
        one.getAttribute('aria-label'),
      );
    expect(offered()).toEqual(['Resume old', 'Stop old', 'Pause exp', 'Stop exp']);
    expect(host.querySelectorAll('small')[0]?.textContent).toBe(
      'step 812, because its cell ran again',
    );
    host.querySelector<HTMLElement>('[aria-label="Resume old"]')?.click();
    expect(kernel.sent.at(-1)).toMatchObject({ name: 'resume', experiment: 'e2' });
    kernel.reply('old is being stopped, not paused');
    await settle();
    expect(onFailure).toHaveBeenCalledWith('old is being stopped, not paused');
    host.querySelector<HTMLElement>('[aria-label="Stop exp"]')?.click();
    expect(kernel.sent.at(-1)).toMatchObject({ name: 'stop', experiment: 'e1' });
    expect(onSelect).not.toHaveBeenCalled();
    kernel.say('state', { experiment: 'e1', state: state({ status: 'finished' }) });
    await settle();
    expect(offered()).toEqual(['Resume old', 'Stop old']);
  });

  it('scrolls to the chosen one when another is chosen, and only then', async () => {
    const seen: string[] = [];
    Element.prototype.scrollIntoView = function (this: Element) {
      seen.push(this.textContent ?? '');
    };
    kernel.say('state', { experiment: 'e1', state: state({ name: 'one', step: 1 }) });
    kernel.say('state', { experiment: 'e2', state: state({ id: 'e2', name: 'two', step: 2 }) });
    let current = 'e1';
    dispose = mountExperiments(host, store, { current: () => current, onSelect: () => {} });
    kernel.say('state', { experiment: 'e1', state: state({ name: 'one', step: 3 }) });
    await settle();
    expect(seen).toHaveLength(1);
    current = 'e2';
    kernel.say('state', { experiment: 'e1', state: state({ name: 'one', step: 4 }) });
    await settle();
    expect(seen).toHaveLength(2);
    expect(seen[1]).toContain('two');
  });
});

describe('modes', () => {
  it('are the same toggles as in the panel, and show a refusal in place', async () => {
    kernel.say('state', { experiment: 'e1', state: state() });
    dispose = mountModes(host, store, { experiment: 'e1' });
    host.querySelector<HTMLElement>('[data-value=bf16]')?.click();
    expect(kernel.sent.at(-1)).toMatchObject({ args: { mode: 'precision', value: 'bf16' } });
    kernel.reply('not now');
    await settle();
    expect(host.querySelector('[role=alert]')?.textContent).toBe('not now');
  });
});

describe('captures', () => {
  const capture = (
    id: string,
    kind: CaptureInfo['kind'],
    ago: number,
    steps: { step?: number; against_step?: number } = {},
  ): CaptureInfo => ({
    id,
    kind,
    step: 400,
    against_step: null,
    ...steps,
    num_bytes: 186 * 1024,
    created_at: Date.now() / 1000 - ago,
    summary: '',
  });

  it('come newest first, age, and open with an event', async () => {
    const captures = [capture('a', 'graph', 120), capture('b', 'memory', 16)];
    kernel.say('state', { experiment: 'e1', state: state({ captures }) });
    dispose = mountCaptures(host, store, { experiment: 'e1' });
    const rows = [...host.querySelectorAll('button')];
    expect(rows.map((row) => row.textContent)).toEqual([
      'memory step 400186 KiB16 s ago',
      'graph step 400186 KiB2 min ago',
    ]);
    await vi.advanceTimersByTimeAsync(5_100);
    expect(rows[0]?.textContent).toContain('21 s ago');
    const seen = vi.fn();
    host.addEventListener('workbench:open', seen);
    rows[0]?.click();
    const { detail } = seen.mock.calls[0]?.[0] as CustomEvent;
    expect(detail).toEqual({ kind: 'memory', experiment: 'e1', capture: 'b' });
  });

  const show = (captures: CaptureInfo[]): (() => unknown) => {
    kernel.say('state', { experiment: 'e1', state: state({ captures }) });
    dispose = mountCaptures(host, store, { experiment: 'e1' });
    const seen = vi.fn();
    host.addEventListener('workbench:open', seen);
    return () => (seen.mock.lastCall?.[0] as CustomEvent | undefined)?.detail as unknown;
  };

  it('offer to compare a graph with the one before it', () => {
    const graphs = [
      capture('a', 'graph', 90, { step: 1 }),
      capture('m', 'memory', 60),
      capture('b', 'graph', 30, { step: 42 }),
    ];
    const request = show(graphs);
    const offers = [...host.querySelectorAll<HTMLButtonElement>('.wb-acts button')];
    expect(offers.map((offer) => offer.title)).toEqual(['Compare the graphs of steps 1 and 42']);
    offers[0]?.click();
    expect(request()).toEqual({ kind: 'diff', experiment: 'e1', compare: ['a', 'b'] });
  });

  it('offer to compare memory with the memory before it', () => {
    const request = show([
      capture('a', 'memory', 90, { step: 1 }),
      capture('g', 'graph', 60),
      capture('b', 'memory', 30, { step: 42 }),
    ]);
    const offers = [...host.querySelectorAll<HTMLButtonElement>('.wb-acts button')];
    expect(offers.map((offer) => offer.title)).toEqual(['Compare the memory of steps 1 and 42']);
    offers[0]?.click();
    expect(request()).toEqual({ kind: 'memory-diff', experiment: 'e1', compare: ['a', 'b'] });
  });

  it('open the comparison that is held already', () => {
    const request = show([
      capture('a', 'graph', 90, { step: 1 }),
      capture('b', 'graph', 30, { step: 42 }),
      capture('d', 'diff', 10, { step: 42, against_step: 1 }),
    ]);
    expect(host.querySelector('[data-capture=d]')?.textContent).toContain('diff steps 1 → 42');
    host.querySelector<HTMLElement>('.wb-acts button')?.click();
    expect(request()).toEqual({ kind: 'diff', experiment: 'e1', capture: 'd' });
  });

  it('say when there are none', () => {
    kernel.say('state', { experiment: 'e1', state: state() });
    dispose = mountCaptures(host, store, { experiment: 'e1' });
    expect(host.textContent).toBe('No step has been captured yet.');
  });
});
