import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { FlowColumns } from '@torch-workbench/views/flow';
import type { CaptureView } from '../../src/documents/capture';
import { CaptureFlow } from '../../src/documents/flow-foot';

vi.mock('@jupyterlab/apputils', () => ({ Notification: { error: vi.fn() } }));
vi.mock('@torch-workbench/records', async (original) => ({
  ...(await original<object>()),
  readRecordAs: (_: unknown, bytes: unknown) => bytes,
}));

// jsdom has no canvas; the strip draws nothing there and everything else works.
HTMLCanvasElement.prototype.getContext = () => null;

/** Says what is in sight when the test says so. */
class Sight {
  static show: (isIntersecting: boolean) => void;
  constructor(listener: (entries: { isIntersecting: boolean }[]) => void) {
    Sight.show = (isIntersecting) => listener([{ isIntersecting }]);
  }
  observe(): void {}
  disconnect(): void {}
}

function piece(first: number, count: number, label = 'body'): FlowColumns {
  return {
    title: 'flow',
    device: 'cpu',
    experiment: 'e1',
    total_sampled: first + count - 1,
    notes: [],
    rows: [{ path: label, label, cls: 'Block', num_modules: 1, num_parameters: 2 }],
    step: Array.from({ length: count }, (_, at) => first + at),
    norm: Array.from({ length: count }, () => 1),
  };
}

describe('the gradient flow below a capture', () => {
  const requests: number[] = [];
  let step = 0;
  let held = true;
  let label = 'body';
  let flow: CaptureFlow;
  const gone: string[] = [];
  const fetchFlow = async (_: string, known: number) => {
    requests.push(known);
    if (step === known) return null;
    return { bytes: piece(known + 1, step - known, label), known };
  };

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal('IntersectionObserver', Sight);
    localStorage.clear();
    [requests.length, step, label] = [0, 3, 'body'];
    const node = document.body.appendChild(document.createElement('div'));
    held = true;
    const get = () => (held ? { state: { step } } : undefined);
    const model = { connection: 'live', experiments: { get, has: () => held } };
    const view = {
      node,
      address: { experiment: 'e1' },
      store: { get: () => model, fetchFlow },
      held: [{ id: 'c1', step: 2 }],
      step: 1,
      goTo: async (id: string) => void gone.push(id),
      record: { tell: () => undefined },
    };
    flow = new CaptureFlow(view as unknown as CaptureView);
    node.append(flow.element);
  });
  afterEach(() => {
    flow.dispose();
    vi.unstubAllGlobals();
    vi.useRealTimers();
    document.body.replaceChildren();
  });

  const strip = (): HTMLElement => flow.element.querySelector('canvas') as HTMLElement;
  const newest = (): string | null => strip().getAttribute('aria-valuemax');
  const after = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
  const trained = (to: number): void => {
    step = to;
    flow.update();
  };

  it('is requested when it is seen, at most once a second, and only for what is new', async () => {
    await after(5000);
    expect(requests).toEqual([]);
    Sight.show(true);
    await after(10);
    expect(requests).toEqual([0]);
    expect(newest()).toBe('3');
    for (let at = 4; at <= 20; at += 1) {
      trained(at);
      await after(100);
    }
    expect(requests.length).toBeLessThanOrEqual(3);
    await after(3000);
    expect(requests[1]).toBe(3);
    expect(newest()).toBe('20');
    const quiet = requests.length;
    await after(10_000);
    expect(requests.length).toBe(quiet);
  });

  it('says so where its experiment is gone, instead of promising more', async () => {
    held = false;
    flow.update();
    expect(flow.element.textContent).toContain('no longer in its kernel');
    held = true;
    Sight.show(true);
    await after(10);
    expect(newest()).toBe('3');
    held = false;
    flow.update();
    expect(newest()).toBe('3');
  });

  it('rests while it is out of sight, and while it is closed', async () => {
    Sight.show(true);
    await after(10);
    Sight.show(false);
    trained(30);
    await after(5000);
    expect(requests).toEqual([0]);
    Sight.show(true);
    await after(10);
    expect(requests).toEqual([0, 3]);
    const title = flow.element.querySelector<HTMLElement>('[aria-expanded]');
    title?.click();
    trained(40);
    await after(5000);
    expect(requests).toEqual([0, 3]);
    expect(localStorage.getItem('torch-workbench:gradient-flow-open')).toBe('no');
    title?.click();
    await after(10);
    expect(newest()).toBe('40');
  });

  it('requests everything when the model was swapped for another', async () => {
    Sight.show(true);
    await after(10);
    label = 'other';
    trained(5);
    await after(3000);
    expect(requests).toEqual([0, 3, 0]);
    expect(newest()).toBe('5');
  });

  it('goes to a capture of the chosen step', async () => {
    Sight.show(true);
    await after(10);
    for (const key of ['Home', 'ArrowRight', 'Enter'])
      strip().dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    expect(gone).toEqual(['c1']);
  });
});
