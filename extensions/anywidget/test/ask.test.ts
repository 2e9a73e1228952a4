import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { WidgetAsk } from '../src/adapters/ask';
import type { WidgetModel } from '../src/adapters/host';
import { recordModel } from '../src/adapters/inline';

type Message = Record<string, unknown>;
type Listener = (data: Message) => void;

/** A widget's model with a kernel behind it that says what the test makes it say. */
class Model implements WidgetModel {
  readonly sent: Message[] = [];
  readonly heard = new Set<Listener>();
  readonly slots = new Set<(sender: unknown, status: string) => void>();
  readonly widget_manager = {
    _create_comm: vi.fn(),
    kernel: {
      statusChanged: {
        connect: (slot: never) => this.slots.add(slot),
        disconnect: (slot: never) => this.slots.delete(slot),
      },
    },
  };
  get = (): unknown => '';
  set = (): void => undefined;
  save_changes = (): void => undefined;
  on = (_: string, callback: never): void => void this.heard.add(callback);
  off = (_: string, callback?: never): void => void this.heard.delete(callback as never);
  send = (content: unknown): void => void this.sent.push(content as Message);
  say(data: Message): void {
    for (const listener of [...this.heard]) listener(data);
  }
}

const answerOf = (model: Model, at: number): Message => ({
  type: 'answer',
  id: model.sent[at]?.['id'],
});

describe('questions of a widget', () => {
  let model: Model;
  let kernel: WidgetAsk;

  beforeEach(() => {
    vi.useFakeTimers();
    model = new Model();
    kernel = new WidgetAsk(model);
  });
  afterEach(() => vi.useRealTimers());

  it('gives each question its own answer, and an error its sentence', async () => {
    const asked = [kernel.ask({ kind: 'cards' }), kernel.ask({ kind: 'why' })];
    expect(model.sent[0]).toMatchObject({ type: 'ask', question: { kind: 'cards' } });
    model.say({ ...answerOf(model, 1), error: 'known are what_if and cards' });
    model.say({ type: 'module', name: 'what_if' });
    model.say({ ...answerOf(model, 0), answer: { cards: [] } });
    await expect(asked[0]).resolves.toEqual({ cards: [] });
    await expect(asked[1]).rejects.toThrow('known are what_if and cards');
  });

  it('does not take what another view of the same widget requested', async () => {
    const other = new WidgetAsk(model);
    const mine = kernel.ask({ kind: 'cards' });
    const theirs = other.ask({ kind: 'cards' });
    model.say({ ...answerOf(model, 1), answer: { whose: 'theirs' } });
    model.say({ ...answerOf(model, 0), answer: { whose: 'mine' } });
    expect(await Promise.all([mine, theirs])).toEqual([{ whose: 'mine' }, { whose: 'theirs' }]);
  });

  it('says that a kernel was restarted, or is silent, and forgets a closed view', async () => {
    const restarted = expect(kernel.ask({})).rejects.toThrow('restarted: run this cell again');
    for (const slot of model.slots) slot(null, 'restarting');
    await restarted;
    const silent = expect(kernel.ask({})).rejects.toThrow('has not answered for two minutes');
    await vi.advanceTimersByTimeAsync(120_001);
    await silent;
    const closed = expect(kernel.ask({})).rejects.toThrow('closed');
    kernel.dispose();
    await closed;
    expect([model.heard.size, model.slots.size]).toEqual([0, 0]);
  });
});

describe('a record below a panel', () => {
  it('asks by the channel of the panel, and has bundles by its messages', async () => {
    const panel = new Model();
    const ask = vi
      .fn<(question: object) => Promise<object>>()
      .mockResolvedValueOnce({ n: 1 })
      .mockRejectedValueOnce(new Error('no longer held'));
    const inner = recordModel(panel, new ArrayBuffer(8), ask);
    const kernel = new WidgetAsk(inner);
    await expect(kernel.ask({ kind: 'cards' })).resolves.toEqual({ n: 1 });
    await expect(kernel.ask({ kind: 'cards' })).rejects.toThrow('no longer held');
    expect(ask).toHaveBeenCalledWith({ kind: 'cards' });
    expect(panel.sent).toEqual([]);
    inner.send({ type: 'module', name: 'what_if' });
    expect(panel.sent).toEqual([{ type: 'module', name: 'what_if' }]);
    kernel.dispose();
    expect(panel.heard.size).toBe(0);
  });
});
