import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FinalError, KernelStore } from '../../src/kernel';
import { FakeKernel, state } from './fake';

let kernel: FakeKernel;
let store: KernelStore;

async function connected(): Promise<void> {
  await vi.advanceTimersByTimeAsync(0);
}

beforeEach(async () => {
  vi.useFakeTimers();
  kernel = new FakeKernel();
  store = new KernelStore({ connect: kernel.connect, retryMs: [100, 1_000], replyLimitMs: 5_000 });
  await connected();
});

afterEach(() => {
  store.dispose();
  vi.useRealTimers();
});

function lossOf(id = 'e1'): { steps: number[]; values: number[] } {
  const curve = store.get().experiments.get(id)?.curves.get('train/loss');
  const length = curve?.length ?? 0;
  return {
    steps: [...(curve?.steps.subarray(0, length) ?? [])],
    values: [...(curve?.values.subarray(0, length) ?? [])],
  };
}

function greet(): void {
  kernel.hello();
  kernel.say('state', { experiment: 'e1', state: state() });
  kernel.curves(0, [1, 2], [2, 1.5], true);
}

describe('messages', () => {
  it('builds the model and notifies its listeners', () => {
    const heard = vi.fn();
    store.subscribe(heard);
    greet();
    expect(store.get().connection).toBe('live');
    expect(store.get().experiments.get('e1')?.state.model).toBe('Net');
    kernel.curves(2, [3], [1.25]);
    expect(lossOf()).toEqual({ steps: [1, 2, 3], values: [2, 1.5, 1.25] });
    expect(heard).toHaveBeenCalledTimes(4);
  });

  it('keeps a held picture unchanged when points are added to the next one', () => {
    greet();
    const before = store.get().experiments.get('e1')?.curves.get('train/loss');
    kernel.curves(2, [3], [9]);
    expect(before?.length).toBe(2);
  });

  it('reads buffers that begin at an odd byte', () => {
    greet();
    const bytes = new Uint8Array(9);
    new DataView(bytes.buffer).setInt32(1, 3, true);
    new DataView(bytes.buffer).setFloat32(5, 0.5, true);
    const parts = [new DataView(bytes.buffer, 1, 4), new DataView(bytes.buffer, 5, 4)];
    const buffers = [...parts, new ArrayBuffer(0)];
    const fields = { experiment: 'e1', names: ['train/loss'], from: [2], total: [3], weight: [0] };
    kernel.say('curves', { ...fields, reset: false }, buffers);
    expect(lossOf().values.at(-1)).toBe(0.5);
  });

  it('accepts a thinned reset that has fewer points than its total, and goes on from there', () => {
    greet();
    const columns = [Int32Array.of(1, 9), Float32Array.of(2, 1), Float32Array.of(2, 1.6)];
    const which = { experiment: 'e1', names: ['train/loss'] };
    const fields = { ...which, from: [0], total: [9], weight: [0.7], reset: true };
    kernel.say(
      'curves',
      fields,
      columns.map((column) => column.buffer),
    );
    kernel.curves(9, [10], [0.5]);
    expect(lossOf().steps).toEqual([1, 9, 10]);
    expect(kernel.commands()).toEqual([]);
  });

  it('forgets a removed experiment', () => {
    greet();
    kernel.say('removed', { experiment: 'e1' });
    expect(store.get().experiments.size).toBe(0);
  });

  it('survives a damaged chart and unknown message types', () => {
    greet();
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
    kernel.say('chart', { experiment: 'e1' }, [new Uint8Array([1, 2, 3])]);
    kernel.say('something newer');
    kernel.curves(2, [3], [1]);
    expect(lossOf().steps).toEqual([1, 2, 3]);
    expect(warn).toHaveBeenCalledOnce();
    warn.mockRestore();
  });

  it('refuses another protocol with a sentence that says what to do', () => {
    kernel.hello([], { protocol: 1 });
    expect(store.get().connection).toBe('dead');
    expect(store.get().detail).toContain('reload the page');
  });
});

describe('gaps', () => {
  it('requests a snapshot once, ignores the rest, and starts again at hello', () => {
    greet();
    kernel.lose();
    kernel.curves(3, [4], [7]);
    kernel.curves(4, [5], [7]);
    expect(kernel.commands()).toEqual(['snapshot']);
    expect(lossOf().steps).toEqual([1, 2]);
    kernel.hello();
    kernel.say('state', { experiment: 'e1', state: state({ step: 5 }) });
    kernel.curves(0, [1, 5], [2, 1], true);
    kernel.curves(2, [6], [0.5]);
    expect(lossOf().steps).toEqual([1, 5, 6]);
    expect(kernel.commands()).toEqual(['snapshot']);
  });

  it('requests a snapshot when curve points do not join', () => {
    greet();
    kernel.curves(7, [8], [1]);
    expect(kernel.commands()).toEqual(['snapshot']);
  });
});

describe('commands', () => {
  it('resolves on ok and rejects with the sentence of the kernel', async () => {
    greet();
    const fine = store.send({ name: 'pause', experiment: 'e1', args: {} });
    kernel.reply();
    await expect(fine).resolves.toBeUndefined();
    const bad = store.send({ name: 'run', experiment: 'e1', args: { epochs: 0 } });
    kernel.reply('epochs must be a whole number from 1');
    await expect(bad).rejects.toThrow('epochs must be a whole number from 1');
    expect(kernel.sent.at(-1)).toMatchObject({ name: 'run', args: { epochs: 0 } });
  });

  it('rejects when no reply comes', async () => {
    greet();
    const never = store.send({ name: 'stop', experiment: 'e1', args: {} });
    const outcome = expect(never).rejects.toThrow('stop: the kernel has not answered for 5 s');
    await vi.advanceTimersByTimeAsync(5_001);
    await outcome;
  });

  it('fetches a record once for two callers at the same time', async () => {
    greet();
    const both = [store.fetchRecord('e1', 'c1'), store.fetchRecord('e1', 'c1')];
    expect(kernel.commands()).toEqual(['fetch']);
    kernel.say('record', { experiment: 'e1', capture: 'c1' }, [Uint8Array.of(1, 2, 3)]);
    kernel.reply();
    const [first, second] = await Promise.all(both);
    expect(new Uint8Array(first as ArrayBuffer)).toEqual(Uint8Array.of(1, 2, 3));
    expect(second).toBe(first);
  });

  it('waits for a record that takes minutes to come, as long as its channel is there', async () => {
    store.dispose();
    kernel = new FakeKernel();
    store = new KernelStore({ connect: kernel.connect });
    await connected();
    greet();
    const large = store.fetchRecord('e1', 'c1');
    await vi.advanceTimersByTimeAsync(600_000);
    kernel.say('record', { experiment: 'e1', capture: 'c1' }, [Uint8Array.of(1)]);
    kernel.reply();
    expect((await large).byteLength).toBe(1);
  });

  it('holds nothing of a record that comes when no caller waits for it any more', async () => {
    greet();
    const late = expect(store.fetchRecord('e1', 'c1')).rejects.toThrow('has not answered');
    await vi.advanceTimersByTimeAsync(5_001);
    await late;
    kernel.say('record', { experiment: 'e1', capture: 'c1' }, [Uint8Array.of(1, 2, 3)]);
    const again = store.fetchRecord('e1', 'c1');
    kernel.reply();
    await expect(again).rejects.toThrow('arrived without its bytes');
  });

  it('can request again after a refused fetch', async () => {
    greet();
    const gone = store.fetchRecord('e1', 'c1');
    kernel.reply('this capture is no longer held: capture the next step');
    await expect(gone).rejects.toThrow('no longer held');
    void store.fetchRecord('e1', 'c1').catch(() => undefined);
    expect(kernel.commands()).toEqual(['fetch', 'fetch']);
  });

  it('requests what was sampled since, and distinguishes new columns from a whole record', async () => {
    greet();
    const piece = store.fetchFlow('e1', 5);
    expect(kernel.sent.at(-1)).toMatchObject({ name: 'flow', args: { known: 5 } });
    kernel.say('flow', { experiment: 'e1', known: 5 }, [Uint8Array.of(4, 5)]);
    kernel.reply();
    const { bytes, known } = (await piece) ?? { bytes: new ArrayBuffer(0), known: -1 };
    expect([known, ...new Uint8Array(bytes)]).toEqual([5, 4, 5]);
    const nothing = store.fetchFlow('e1', 7);
    kernel.reply();
    expect(await nothing).toBeNull();
  });

  it('sends several questions at once, and gives each its own answer', async () => {
    greet();
    const first = store.ask('e1', 'm1', { kind: 'cards' });
    const asked = kernel.sent.at(-1);
    expect(asked).toMatchObject({
      name: 'ask',
      args: { capture: 'm1', question: { kind: 'cards' } },
    });
    const second = store.ask('e1', 'm1', { kind: 'what_if', rows: [] });
    kernel.say('answer', { experiment: 'e1', capture: 'm1', id: asked?.['id'], answer: { n: 1 } });
    kernel.say('reply', { id: asked?.['id'], ok: true, error: '' });
    await expect(first).resolves.toEqual({ n: 1 });
    kernel.reply('rows is a list of 1 to 16 rows, not []');
    await expect(second).rejects.toThrow('rows is a list');
  });

  it('gives a question up after its time, and what answers it then is dropped', async () => {
    greet();
    const late = store.ask('e1', 'm1', { kind: 'cards' });
    const id = kernel.sent.at(-1)?.['id'];
    const outcome = expect(late).rejects.toThrow('ask: the kernel has not answered for 5 s');
    await vi.advanceTimersByTimeAsync(5_001);
    await outcome;
    kernel.say('answer', { experiment: 'e1', capture: 'm1', id, answer: { n: 1 } });
    expect(store.get().connection).toBe('live');
    kernel.hangUp('kernel restarted: run the cell again', true);
    await expect(store.ask('e1', 'm1', {})).rejects.toThrow('kernel restarted');
  });
});

describe('connection', () => {
  it('keeps the picture, rejects what waits, and reopens a lost channel', async () => {
    greet();
    const waiting = store.send({ name: 'pause', experiment: 'e1', args: {} });
    const outcome = expect(waiting).rejects.toThrow('connection lost');
    kernel.hangUp('connection lost');
    await outcome;
    expect(store.get()).toMatchObject({ connection: 'lost', detail: 'connection lost' });
    expect(lossOf().steps).toEqual([1, 2]);
    await vi.advanceTimersByTimeAsync(101);
    greet();
    expect(store.get().connection).toBe('live');
  });

  it('stays down after a final reason, until the host reconnects', async () => {
    greet();
    kernel.hangUp('kernel restarted: run the cell again', true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(store.get().connection).toBe('dead');
    const refused = store.send({ name: 'pause', experiment: 'e1', args: {} });
    await expect(refused).rejects.toThrow('kernel restarted: run the cell again');
    void store.reconnect();
    await connected();
    kernel.hello([]);
    expect(store.get().connection).toBe('live');
    expect(store.get().experiments.size).toBe(0);
  });

  it('tries again with growing waits, and not at all after a FinalError', async () => {
    const connect = vi.fn(() => Promise.reject(new Error('no kernel yet')));
    const patient = new KernelStore({ connect, retryMs: [100, 1_000] });
    await vi.advanceTimersByTimeAsync(2_150);
    expect(connect).toHaveBeenCalledTimes(4);
    expect(patient.get().detail).toBe('no kernel yet');
    patient.dispose();
    const refuse = vi.fn(() => Promise.reject(new FinalError('comms are switched off')));
    const final = new KernelStore({ connect: refuse, retryMs: [100] });
    await vi.advanceTimersByTimeAsync(5_000);
    expect(refuse).toHaveBeenCalledOnce();
    expect(final.get().connection).toBe('dead');
    final.dispose();
  });

  it('says it is alive every 30 s while the page is visible', async () => {
    greet();
    await vi.advanceTimersByTimeAsync(60_001);
    expect(kernel.sent.filter((message) => message['type'] === 'alive')).toHaveLength(2);
  });

  it('closes its channel and stays silent after dispose', async () => {
    store.dispose();
    expect(kernel.closed).toBe(1);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(kernel.sent).toEqual([]);
  });
});
