import { Button, iconButton } from '../controls/button';
import { h, setAttr, setShown, setText } from '../dom';
import { clock, count, oneLine } from '../format';

/** A run that was deleted and can be put back. */
export interface DeletedRun {
  /** Where it is kept. */
  readonly path: string;
  readonly name: string;
  /** When it is removed for good, in seconds since 1970. */
  readonly removed_at: number;
}

/**
 * What stays at the foot of the list: the run that was deleted last with Undo, and why something
 * could not be done. It offers what the server keeps, so also what another window deleted.
 */
export class DeletedRuns {
  readonly el: HTMLElement;
  private readonly error = h('p', { class: 'wb-side-error', role: 'alert' });
  private readonly fault: HTMLElement;
  private readonly status = h('span', { class: 'wb-sr', role: 'status' });
  private readonly name = h('b');
  private readonly more = h('span', { class: 'more' });
  private readonly offer: HTMLElement;
  private readonly undo: Button;
  private readonly dismissed = new Set<string>();
  private last: DeletedRun | null = null;
  private shown: readonly DeletedRun[] = [];

  constructor(onUndo: (run: DeletedRun) => Promise<void>) {
    this.undo = new Button('is-small', { label: 'Undo', icon: 'undo' }, () => {
      const run = this.last;
      if (run === null) return;
      this.undo.set({ disabled: true });
      void onUndo(run).finally(() => this.undo.set({ disabled: false }));
    });
    const close = iconButton('close', 'Hide', () => {
      for (const { path } of this.shown) this.dismissed.add(path);
      this.show(this.shown);
    });
    const what = h('span', { class: 'what' }, 'Deleted ', this.name);
    this.offer = h('div', { class: 'offer' }, what, this.more, this.undo.el, close);
    const read = iconButton('close', 'Hide the message', () => this.fail(''));
    this.fault = h('div', { class: 'fault' }, this.error, read);
    this.el = h('div', { class: 'wb-deleted' }, this.fault, this.offer, this.status);
    this.fail('');
    this.show([]);
  }

  /** Takes what can be put back, the one deleted last first. */
  show(deleted: readonly DeletedRun[]): void {
    this.shown = deleted;
    const offered = deleted.filter(({ path }) => !this.dismissed.has(path));
    const [first] = offered;
    this.last = first ?? null;
    setShown(this.offer, first !== undefined);
    if (!first) return;
    const name = oneLine(first.name, 80);
    const until = clock(new Date(first.removed_at * 1000));
    setText(this.name, name);
    setText(this.more, offered.length > 1 ? `+${count(offered.length - 1)}` : '');
    setAttr(this.more, 'title', `${count(offered.length - 1)} more can be put back after it`);
    setAttr(this.offer, 'title', `${name} is removed for good at ${until}`);
    setAttr(this.undo.el, 'aria-label', `Undo: put ${name} back`);
  }

  /** Why something could not be done; `''` takes the sentence away. */
  fail(sentence: string): void {
    setAttr(this.error, 'role', 'alert');
    setAttr(this.error, 'class', 'wb-side-error');
    setText(this.error, sentence);
    setShown(this.fault, sentence !== '');
  }

  /** What to know of something that was done. */
  note(sentence: string): void {
    this.fail(sentence);
    setAttr(this.error, 'role', 'status');
    setAttr(this.error, 'class', 'wb-side-empty');
  }

  /** Announces what was done to those who do not see the list. */
  say(sentence: string): void {
    setText(this.status, sentence);
  }

  get hasFocus(): boolean {
    return this.el.contains(document.activeElement);
  }

  focus(): void {
    this.undo.el.focus();
  }
}
