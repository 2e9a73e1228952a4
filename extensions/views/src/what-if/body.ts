/** What is in the row "What if?": controls, and what the allocator would do under them. */
import { messageOf } from '../errors';
import { h } from '../dom';
import { link } from '../graph/dom';
import { formatBytes, formatCount, shorten } from '../graph/format';
import { QuestionQueue, type Ask } from '../memory/questions';
import type { MemoryColumns } from '../memory/series';
import type { BodyEvents } from '../memory/what-if';
import { Controls } from './controls';
import { BASES, peakOf, plot } from './plot';
import {
  choiceOf,
  readAnswer,
  rowsOf,
  type Answer,
  type Gpu,
  type Choice,
  type NamedRow,
  type Row,
} from './rows';

const SIZES = ['RTX 4090', 'L40', 'A100 80 GB', 'H200'];

export class WhatIfBody {
  readonly elements: readonly HTMLElement[];
  private readonly controls = new Controls((choice) => this.choose(choice));
  private readonly plot = h('div', { class: 'wv-wi-plotbox' });
  private record: MemoryColumns | null = null;
  private most = 0;
  private ask: Ask | null = null;
  private questions: QuestionQueue<object, Answer> | null = null;
  private names: NamedRow[] = [];
  /** Which of them is the chosen one. */
  private chosen = 0;
  private choice: Choice | null = null;

  constructor(private readonly events: BodyEvents) {
    this.elements = [this.controls.element, this.plot];
  }

  /**
   * Takes a record, the most bytes that were reserved in it, and who answers; sends the first
   * question.
   */
  open(record: MemoryColumns, most: number, ask: Ask): void {
    this.close();
    [this.record, this.most, this.ask] = [record, most, ask];
    void this.begin(ask);
  }

  /** Hears no answer any more. */
  close(): void {
    this.questions?.dispose();
    [this.record, this.ask, this.questions, this.choice] = [null, null, null, null];
    this.plot.replaceChildren();
  }

  /** Queries which GPUs there are, and then the one that the recording would fit on. */
  private async begin(ask: Ask): Promise<void> {
    const { record } = this;
    if (!record) return;
    const read = (answer: object): Answer => readAnswer(answer, this.names.length);
    this.questions = new QuestionQueue<object, Answer>(ask, read, {
      answer: (answer) => this.show(answer),
      error: (sentence) => this.fail(sentence),
      working: this.events.working,
    });
    this.choice = choiceOf(record, null);
    try {
      const { cards: gpus = [], context_bytes = 0 } = (await ask({ kind: 'cards' })) as {
        cards?: Gpu[];
        context_bytes?: number;
      };
      if (this.record !== record || this.ask !== ask) return;
      this.controls.open(gpus, record.batch_size);
      this.choice = choiceOf(record, this.firstGpu(gpus, context_bytes));
      this.controls.show(this.choice);
      this.put();
    } catch (reason) {
      if (this.record !== record || this.ask !== ask) return;
      this.choice = null;
      this.fail(messageOf(reason));
    }
  }

  /** That of a prediction, else the smallest usual one that holds what was recorded. */
  private firstGpu(gpus: readonly Gpu[], context: number): string | number | null {
    const { record, most } = this;
    if (record?.card && gpus.some(({ name }) => name === record.card)) return record.card;
    if (record && record.card_bytes > 0) return record.card_bytes + context;
    const usual = gpus.filter(({ name }) => SIZES.includes(name));
    const found = usual.find(({ usable_bytes }) => usable_bytes >= most);
    return (found ?? gpus[gpus.length - 1])?.name ?? null;
  }

  private choose(choice: Choice): void {
    this.choice = choice;
    this.put();
  }

  private put(): void {
    if (!this.record || !this.choice) return;
    const { rows, chosen } = rowsOf(this.record, this.choice);
    [this.names, this.chosen] = [rows, chosen];
    this.questions?.put({ kind: 'what_if', rows: rows.map(({ request }) => request), chosen });
  }

  private show(answer: Answer): void {
    const row = answer.rows[this.chosen];
    if (!row) return;
    const recorded = answer.rows[0]?.peak_high ?? -1;
    this.events.say(...this.words(row, answer));
    const base = recorded > 0 ? recorded : this.most;
    this.plot.replaceChildren(
      plot(this.names, answer, this.chosen, base, ({ choice }) => {
        if (choice) this.choose(choice);
        if (choice) this.controls.show(choice);
      }),
    );
    const failed = row.error === '' && !row.fits && !row.got_past && row.failed_event >= 0;
    const card = typeof row.card === 'string' ? row.card : formatBytes(row.card ?? 0);
    this.events.failure(failed ? { event: row.failed_event, card } : null);
  }

  /** `Predicted peak 52.1 GiB, ✓ fits, 26.4 GiB left`. */
  private words(row: Row, { smallest }: Answer): (Node | string)[] {
    if (row.error) return [h('span', { class: 'wv-wi-error' }, shorten(row.error, 300))];
    const kind = row.basis === 'recorded' ? 'Recorded peak ' : 'Predicted peak ';
    const words: (Node | string)[] = [kind, h('b', { title: BASES[row.basis] }, peakOf(row))];
    if (row.got_past) {
      words.push(' at least, past the refused request; what follows it is not known');
    } else if (row.usable_bytes >= 0 && row.fits) {
      const left = formatBytes(Math.max(0, row.usable_bytes - row.peak_high));
      words.push(', ', h('b', { class: 'wv-wi-fits' }, '✓ fits'), ` ${left} left`);
    } else if (row.usable_bytes >= 0) {
      words.push(', ', h('b', { class: 'wv-wi-out' }, '✕ does not fit'), ': out of memory at ');
      const event = `event ${formatCount(row.failed_event)}`;
      const go = (): void => this.events.goTo(row.failed_event);
      words.push(row.failed_event < 0 ? 'its start' : link(event, go, 'Go to this event'));
    }
    if (row.num_retries > 0) {
      const times = row.num_retries === 1 ? 'once' : `${formatCount(row.num_retries)} times`;
      words.push(`, everything unused given back ${times}`);
    }
    return [...words, h('span', { class: 'wv-note' }, ` · ${smallestGpu(smallest)}`)];
  }

  private fail(sentence: string): void {
    this.events.fail(sentence, () => {
      if (this.choice) this.put();
      else if (this.ask) void this.begin(this.ask);
    });
  }
}

function smallestGpu(smallest: Answer['smallest']): string {
  if (!smallest) return 'fits on no GPU listed';
  const says = smallest.is_lower_bound ? 'no GPU smaller than' : 'smallest GPU that fits:';
  return `${says} ${smallest.card}`;
}
