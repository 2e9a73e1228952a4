/**
 * Questions of a widget's record, over the widget's own messages: `workbench/memory/widget_questions.py` is
 * the other end.
 */
import { commManager, type WidgetModel } from './host';

/** A question waits behind a running cell, and its answer is a simulation. */
const LIMIT_MS = 120_000;
const SILENT =
  'The kernel has not answered for two minutes: it is busy with a cell, or was restarted. Run this cell again.';
const RESTARTED = 'The kernel was restarted: run this cell again.';

interface Waiting {
  readonly resolve: (answer: object) => void;
  readonly reject: (reason: Error) => void;
  readonly timer: ReturnType<typeof setTimeout>;
}

/** Queries the kernel behind a widget. */
export class WidgetAsk {
  private readonly waiting = new Map<string, Waiting>();
  private readonly kernel;
  /** Several views of one widget hear each other's answers. */
  private readonly view = Math.random().toString(36).slice(2);
  private numAsked = 0;

  constructor(private readonly model: WidgetModel) {
    this.kernel = commManager(model)?.kernel ?? null;
    model.on('msg:custom', this.receive as never);
    this.kernel?.statusChanged?.connect(this.follow);
  }

  readonly ask = (question: object): Promise<object> =>
    new Promise((resolve, reject) => {
      this.numAsked += 1;
      const id = `${this.view}-${this.numAsked}`;
      const timer = setTimeout(() => this.take(id)?.reject(new Error(SILENT)), LIMIT_MS);
      this.waiting.set(id, { resolve, reject, timer });
      this.model.send({ type: 'ask', id, question });
    });

  dispose(): void {
    this.model.off('msg:custom', this.receive as never);
    this.kernel?.statusChanged?.disconnect(this.follow);
    this.rejectAll('This view was closed.');
  }

  private readonly receive = (data: Record<string, unknown>): void => {
    if (data['type'] !== 'answer') return;
    const { error, answer } = data;
    const one = this.take(String(data['id']));
    if (answer && typeof answer === 'object') one?.resolve(answer);
    else one?.reject(new Error(String(error ?? '') || 'The kernel sent no answer.'));
  };

  private readonly follow = (_: unknown, status: string): void => {
    if (['restarting', 'autorestarting', 'dead'].includes(status)) this.rejectAll(RESTARTED);
  };

  private rejectAll(sentence: string): void {
    for (const id of [...this.waiting.keys()]) this.take(id)?.reject(new Error(sentence));
  }

  private take(id: string): Waiting | undefined {
    const one = this.waiting.get(id);
    clearTimeout(one?.timer);
    this.waiting.delete(id);
    return one;
  }
}
