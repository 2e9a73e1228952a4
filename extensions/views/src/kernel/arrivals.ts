import type { Buffer, ChannelData } from './channel';
import { aligned } from './curves';
import type { FlowPiece } from './model';

/** What a kernel sends before it replies to the requesting command: kept until it is taken. */
export class Arrivals {
  /** Of captures and files that a caller waits for; null before they come. */
  private readonly bytes = new Map<string, ArrayBuffer | null>();
  private readonly flows = new Map<string, FlowPiece>();
  /** Of questions that a caller waits for; null before the answer. */
  private readonly answers = new Map<string, object | null>();

  keep(message: ChannelData, buffers: readonly Buffer[]): void {
    const { type, capture } = message;
    const first = buffers[0];
    if (type === 'answer') {
      const id = String(message['id']);
      // One that comes after its time limit is dropped.
      if (this.answers.has(id)) this.answers.set(id, message['answer'] as object);
    } else if (type === 'record' && first) {
      this.keepBytes(String(capture), first);
    } else if (type === 'file' && first) {
      this.keepBytes(`${String(capture)}.${String(message['format'])}`, first);
    } else if (type === 'flow' && first) {
      const piece = { bytes: aligned(first), known: Number(message['known']) };
      this.flows.set(String(message['experiment']), piece);
    }
  }

  /** Keeps the bytes of a capture (`g1`), or of a file made of one (`g1.pdf`), until taken. */
  awaitBytes(key: string): void {
    this.bytes.set(key, null);
  }

  takeBytes(key: string): ArrayBuffer | null {
    return take(this.bytes, key);
  }

  takeFlow(experiment: string): FlowPiece | null {
    return take(this.flows, experiment);
  }

  /** Keeps the answer to a question that is put now, until `end`. */
  awaitAnswer(id: string): { end: () => void; get: () => object } {
    let answer: object | null = null;
    this.answers.set(id, null);
    return {
      end: () => (answer = take(this.answers, id)),
      get: () => {
        if (!answer) throw new Error('the kernel replied without an answer: try again');
        return answer;
      },
    };
  }

  /** Those that come after their time limit are dropped, and may be large. */
  private keepBytes(key: string, buffer: Buffer): void {
    if (this.bytes.has(key)) this.bytes.set(key, aligned(buffer));
  }

  clear(): void {
    for (const held of [this.bytes, this.flows, this.answers]) held.clear();
  }
}

function take<T>(held: Map<string, T>, key: string): T | null {
  const found = held.get(key) ?? null;
  held.delete(key);
  return found;
}
