import { messageOf } from '../errors';
/** Questions, one at a time: of those put meanwhile only the latest counts. */

export type Ask = (question: object) => Promise<object>;

/** So long a person may go on before the first is sent. */
const PAUSE_MS = 120;
/** Only then is waiting worth a sign. */
const SLOW_MS = 300;

interface Handlers<A> {
  /** Gets the answer to the latest question. */
  answer: (answer: A) => void;
  error: (sentence: string) => void;
  /** Whether an answer has been awaited for a while. */
  working: (is: boolean) => void;
}

export class QuestionQueue<Q extends object, A> {
  private timer = 0;
  private slow = 0;
  private next: Q | null = null;
  private busy = false;
  private over = false;
  /** Of the latest question; an answer to an earlier one is dropped. */
  private number = 0;

  /** `read` refuses, with an error, what is no answer. */
  constructor(
    private readonly ask: Ask,
    private readonly read: (answer: object) => A,
    private readonly handlers: Handlers<A>,
  ) {}

  put(question: Q): void {
    this.next = question;
    this.number += 1;
    clearTimeout(this.timer);
    if (!this.busy) this.timer = window.setTimeout(() => void this.send(), PAUSE_MS);
  }

  dispose(): void {
    this.over = true;
    clearTimeout(this.timer);
    clearTimeout(this.slow);
  }

  private async send(): Promise<void> {
    this.busy = true;
    this.slow = window.setTimeout(() => this.handlers.working(true), SLOW_MS);
    // What was put while an answer was awaited is sent at once, without a pause.
    while (this.next && !this.over) await this.one(this.next);
    this.busy = false;
    clearTimeout(this.slow);
    if (!this.over) this.handlers.working(false);
  }

  private async one(question: Q): Promise<void> {
    const { number } = this;
    this.next = null;
    try {
      const answer = this.read(await this.ask(question));
      if (number === this.number && !this.over) this.handlers.answer(answer);
    } catch (reason) {
      const sentence = messageOf(reason);
      if (number === this.number && !this.over) this.handlers.error(sentence);
    }
  }
}
