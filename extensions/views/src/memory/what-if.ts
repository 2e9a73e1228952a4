/** "What if?": the same program with other settings, on another GPU, with another batch. */
import { h } from '../graph/dom';
import type { Ask } from './questions';
import { isExact } from './certificate';
import { remember, remembered } from '../remembered';
import { lastRefusal } from './refusals';
import type { Failure } from './scale';
import type { Model } from './model';
import { failed, unloaded, type Parts } from './part';
import type { MemoryColumns } from './series';

type WhatIfModule = Awaited<ReturnType<Parts['whatIf']>>;

const KEY = 'workbench:what-if';
const NO_KERNEL =
  'No kernel is available to run the allocator: open the file in JupyterLab, show the recording in a notebook whose kernel runs, or call .what_if(…) in Python.';

interface Events {
  /** Memory runs out at an event; null where it does not. */
  failure: (failure: Failure | null) => void;
  goTo: (event: number) => void;
}

/** What the body reports to the row it is in. */
export interface BodyEvents extends Events {
  say: (...words: (Node | string)[]) => void;
  /** One sentence, and what a person may try again. */
  fail: (sentence: string, again: () => void) => void;
  working: (is: boolean) => void;
}

type Body = InstanceType<WhatIfModule['WhatIfBody']>;

export class WhatIf {
  private readonly toggle = h(
    'button',
    { type: 'button', class: 'wv-wi-toggle', 'aria-expanded': 'false', onclick: () => this.flip() },
    h('b', {}, 'What if?'),
  );
  private readonly note = h('span', { class: 'wv-note' });
  private readonly said = h('span', { class: 'wv-wi-said', 'aria-live': 'polite' });
  private readonly working = h('div', { class: 'wv-working', hidden: true });
  private readonly body = h('div', { class: 'wv-wi-body', hidden: true });
  readonly element = h(
    'section',
    { class: 'wv-wi', 'aria-label': 'What if?' },
    this.working,
    h('div', { class: 'wv-wi-head' }, this.toggle, this.note, this.said),
    this.body,
  );
  private model: Model | null = null;
  private ask: Ask | null = null;
  private loaded: Body | null = null;
  private loading: Promise<WhatIfModule> | null = null;
  /** Whether the body has been given this record. */
  private begun = false;
  /** Whether a person has just opened the row, and sees nothing in it yet. */
  private awaited = false;

  constructor(
    private readonly load: Parts['whatIf'],
    private readonly events: Events,
  ) {}

  get isOpen(): boolean {
    return this.toggle.getAttribute('aria-expanded') === 'true';
  }

  /** Takes a record and who answers; `roomy` opens it unless the user has closed it. */
  open(model: Model, ask: Ask | null, roomy: boolean): void {
    if (model.record === this.model?.record && ask === this.ask) return;
    this.dispose();
    [this.model, this.ask, this.begun] = [model, ask, false];
    this.said.replaceChildren();
    this.working.hidden = true;
    this.note.textContent = ask ? noteOf(model.record) : '';
    this.events.failure(null);
    this.expand(remembered(KEY) ?? roomy);
  }

  dispose(): void {
    this.loaded?.close();
    [this.model, this.ask] = [null, null];
  }

  flip(): void {
    this.expand(!this.isOpen);
    remember(KEY, this.isOpen);
    this.awaited = this.isOpen;
    this.reveal();
  }

  /** Brings what a person has opened into sight: in a cell the row begins at the lower edge. */
  private reveal(): void {
    if (this.awaited) this.element.scrollIntoView?.({ block: 'nearest' });
  }

  private expand(open: boolean): void {
    this.toggle.setAttribute('aria-expanded', String(open));
    this.body.hidden = !open || this.ask === null;
    if (!this.ask) this.said.textContent = open ? NO_KERNEL : '';
    else if (open && !this.begun) void this.begin();
  }

  private async begin(): Promise<void> {
    const { model, ask } = this;
    if (!model || !ask) return;
    this.begun = true;
    this.working.hidden = false;
    try {
      this.loading ??= this.load();
      const { WhatIfBody } = await this.loading;
      if (this.model !== model || this.ask !== ask) return;
      this.loaded ??= this.built(WhatIfBody);
    } catch (reason) {
      this.loading = null;
      if (this.model === model && this.ask === ask)
        this.fail(unloaded('What if?', reason), () => this.begin());
      return;
    }
    this.working.hidden = true;
    this.loaded.open(model.record, mostOf(model), ask);
  }

  private built(make: WhatIfModule['WhatIfBody']): Body {
    const body = new make({
      ...this.events,
      say: (...words) => this.say(words),
      fail: (sentence, again) => this.fail(sentence, again),
      working: (is) => (this.working.hidden = !is),
    });
    this.body.replaceChildren(...body.elements);
    return body;
  }

  private say(words: (Node | string)[]): void {
    this.said.replaceChildren(...words);
    // What is below the words comes with them; from then on the page stays where it is.
    requestAnimationFrame(() => {
      this.reveal();
      this.awaited = false;
    });
  }

  private fail(sentence: string, again: () => void): void {
    this.working.hidden = true;
    const retry = (): void => {
      this.said.replaceChildren();
      again();
    };
    this.said.replaceChildren(...failed(sentence, retry));
  }
}

/** The most bytes held at once; of reserved memory, where a recording knows it. */
function mostOf({ series }: Model): number {
  let { most } = series;
  for (const bytes of series.reserved ?? []) most = Math.max(most, bytes);
  return most;
}

/** What the figures of a record stand on. */
function noteOf(record: MemoryColumns): string {
  if (lastRefusal(record) !== null)
    return '! the recording ends where memory ran out: what would have followed is not in it';
  if (record.segment_bytes.length === 0)
    return 'on a simulated GPU: predicted from requested bytes; ◇ not certified';
  if (record.is_predicted || isExact(record)) return 'replay; ◇ not certified';
  return record.certificate
    ? '! the replay differs from the recording: figures may be off'
    : 'not replayed; ◇ not certified';
}
