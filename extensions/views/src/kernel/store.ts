import { messageOf } from '../errors';
import type { Store } from '../store';
import { Arrivals } from './arrivals';
import {
  clientId,
  FinalError,
  type Buffer,
  type Channel,
  type ChannelData,
  type Connect,
} from './channel';
import { EMPTY_MODEL, mismatch, PROTOCOL } from './model';
import type { Command, FlowPiece, KernelModel } from './model';
import { PendingReplies } from './pending';
import { reduceSafely } from './reducer';

export interface KernelStoreOptions {
  readonly connect: Connect;
  /** Made by the browser; ties the two comms of this view together. */
  readonly client?: string;
  /** How long a command may stay without a reply. */
  readonly replyLimitMs?: number;
  /** Waits between attempts to reopen a lost channel; the last one repeats. */
  readonly retryMs?: readonly number[];
}

const RETRY_MS = [500, 2_000, 5_000, 15_000];
const REPLY_LIMIT_MS = 30_000;
/** A hundred megabytes over a megabit a second; a channel that is lost ends the wait at once. */
const BYTES_LIMIT_MS = 900_000;
/** A question runs an allocator through a whole recording, some of them several times. */
const ASK_LIMIT_MS = 120_000;
/** The kernel stops sending to a view it has not heard of for five minutes. */
const ALIVE_MS = 30_000;

/**
 * What one browser view knows of its kernel, kept up to date over a `Channel`.
 *
 * Messages are numbered. A gap, or a message that does not fit, means that something was lost: what
 * arrives is then ignored until the requested snapshot begins with a new `hello`. When the channel
 * closes the last picture stays and the channel is reopened, unless the reason is final.
 */
export class KernelStore implements Store<KernelModel, Command> {
  readonly client: string;
  private model: KernelModel = EMPTY_MODEL;
  private readonly listeners = new Set<() => void>();
  private readonly replies = new PendingReplies();
  private readonly arrived = new Arrivals();
  private readonly fetching = new Map<string, Promise<ArrayBuffer>>();
  private channel: Channel | null = null;
  private expected = -1;
  private attempts = 0;
  private commands = 0;
  /** Counts channels: what a closed one still delivers is ignored. */
  private generation = 0;
  private disposed = false;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private readonly aliveTimer: ReturnType<typeof setInterval>;

  constructor(private readonly options: KernelStoreOptions) {
    this.client = options.client ?? clientId();
    this.aliveTimer = setInterval(this.sayAlive, ALIVE_MS);
    globalThis.document?.addEventListener('visibilitychange', this.sayAlive);
    void this.reconnect();
  }

  get(): KernelModel {
    return this.model;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /**
   * Resolves on the kernel's `ok`; rejects with its sentence, or ours when it cannot be queried.
   */
  send(command: Command, limitMs = this.options.replyLimitMs ?? REPLY_LIMIT_MS): Promise<void> {
    return this.request(this.nextId(), command, limitMs);
  }

  private request(id: string, command: Command, limitMs: number): Promise<void> {
    if (!this.channel || this.model.connection === 'dead') {
      return Promise.reject(new Error(this.model.detail || 'there is no connection to the kernel'));
    }
    const reply = this.replies.wait(id, command.name.replaceAll('_', ' '), limitMs);
    this.post({ type: 'command', id, ...command });
    return reply;
  }

  /** The bytes of one capture; concurrent calls for the same one share a request. */
  fetchRecord(experiment: string, capture: string): Promise<ArrayBuffer> {
    return this.fetchBytes(capture, { name: 'fetch', experiment, args: { capture } });
  }

  /** A capture in another form, which the kernel may take a while to make. */
  fetchExport(experiment: string, capture: string, format: string): Promise<ArrayBuffer> {
    const command = { name: 'export', experiment, args: { capture, format } } as const;
    return this.fetchBytes(`${capture}.${format}`, command);
  }

  /**
   * The gradient flow behind its first `known` samples, as the bytes of a record; `known` is 0 in
   * the answer where it is all of it. Null: nothing was sampled since.
   */
  async fetchFlow(experiment: string, known: number): Promise<FlowPiece | null> {
    await this.send({ name: 'flow', experiment, args: { known } });
    return this.arrived.takeFlow(experiment);
  }

  /** The answer to a question of a memory capture (`workbench/memory/simulation/questions.py`). */
  async ask(experiment: string, capture: string, question: object): Promise<object> {
    const id = this.nextId();
    const command = { name: 'ask', experiment, args: { capture, question } } as const;
    const answer = this.arrived.awaitAnswer(id);
    await this.request(id, command, this.options.replyLimitMs ?? ASK_LIMIT_MS).finally(answer.end);
    return answer.get();
  }

  /** Opens the channel anew, now. Hosts call it when their kernel is back. */
  async reconnect(): Promise<void> {
    if (this.disposed) return;
    clearTimeout(this.retryTimer);
    this.drop('the connection is being opened again');
    const generation = this.generation;
    if (this.model.connection === 'dead') this.update({ connection: 'connecting', detail: '' });
    try {
      const channel = await this.options.connect(this.client);
      if (generation !== this.generation) channel.close();
      else this.adopt(channel, generation);
    } catch (error) {
      if (generation === this.generation) this.lost(messageOf(error), error instanceof FinalError);
    }
  }

  dispose(): void {
    this.disposed = true;
    clearTimeout(this.retryTimer);
    clearInterval(this.aliveTimer);
    globalThis.document?.removeEventListener('visibilitychange', this.sayAlive);
    this.drop('this view was closed');
    this.listeners.clear();
  }

  private fetchBytes(key: string, command: Command): Promise<ArrayBuffer> {
    const running = this.fetching.get(key);
    if (running) return running;
    this.arrived.awaitBytes(key);
    const request = this.send(command, this.options.replyLimitMs ?? BYTES_LIMIT_MS)
      .then(() => {
        const bytes = this.arrived.takeBytes(key);
        if (!bytes) throw new Error('the capture arrived without its bytes: open it again');
        return bytes;
      })
      .finally(() => {
        this.fetching.delete(key);
        this.arrived.takeBytes(key);
      });
    this.fetching.set(key, request);
    return request;
  }

  private adopt(channel: Channel, generation: number): void {
    this.channel = channel;
    const mine = (): boolean => generation === this.generation;
    channel.onMessage((data, buffers) => {
      if (mine()) this.receive(data, buffers);
    });
    channel.onClose((reason, final) => {
      if (mine()) this.lost(reason, final === true);
    });
  }

  private drop(reason: string): void {
    this.generation += 1;
    const channel = this.channel;
    this.channel = null;
    this.expected = -1;
    this.arrived.clear();
    channel?.close();
    this.replies.rejectAll(reason);
  }

  private lost(reason: string, final: boolean): void {
    this.drop(reason);
    this.update({ connection: final ? 'dead' : 'lost', detail: reason });
    if (final || this.disposed) return;
    const waits = this.options.retryMs ?? RETRY_MS;
    const wait = waits[Math.min(this.attempts, waits.length - 1)] ?? 0;
    this.attempts += 1;
    this.retryTimer = setTimeout(() => void this.reconnect(), wait);
  }

  private receive(message: ChannelData, buffers: readonly Buffer[]): void {
    const { type, seq } = message;
    if (type === 'reply') {
      this.replies.settle(String(message['id']), message['ok'] === true, String(message['error']));
    } else {
      this.arrived.keep(message, buffers);
    }
    if (type === 'hello') {
      if (message['protocol'] !== PROTOCOL) return this.lost(mismatch(message['protocol']), true);
      this.attempts = 0;
    } else if (this.expected < 0) {
      return;
    } else if (seq !== this.expected) {
      return this.askSnapshot();
    }
    this.expected = Number(seq) + 1;
    const next = reduceSafely(this.model, message, buffers);
    if (next === null) this.askSnapshot();
    else if (next !== this.model) this.replace(next);
  }

  /** Everything until the next `hello` is ignored; replies and records still count. */
  private askSnapshot(): void {
    this.expected = -1;
    this.post({ type: 'command', id: this.nextId(), experiment: '', name: 'snapshot', args: {} });
  }

  private nextId(): string {
    this.commands += 1;
    return `${this.client}-${this.commands}`;
  }

  private post(data: ChannelData): void {
    try {
      this.channel?.send(data);
    } catch (error) {
      this.lost(messageOf(error), false);
    }
  }

  private readonly sayAlive = (): void => {
    if (globalThis.document?.visibilityState !== 'hidden') this.post({ type: 'alive' });
  };

  private update(change: Partial<KernelModel>): void {
    this.replace({ ...this.model, ...change });
  }

  private replace(model: KernelModel): void {
    this.model = model;
    for (const listener of [...this.listeners]) listener();
  }
}
