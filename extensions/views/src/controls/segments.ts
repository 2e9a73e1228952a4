import type { ModeChoice, ModeState } from '@torch-workbench/records';
import { h, setAttr, setClass, setText, uniqueId } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { Popover, PopoverContent } from './popover';
import { availableContent, type Checker, moreContent, noteContent, reasonContent } from './reason';
import { roving, setStop } from './roving';

export interface ModeActions extends Checker {
  /** Applies a value; resolves to false when the kernel refused (and that was shown). */
  setMode(mode: string, value: string): Promise<boolean>;
}

/** How long an accepted switch may stay without showing in the state. */
const SETTLE_MS = 3_000;

/** From so many choices on, those that a person will rarely make are behind *more*. */
const MANY = 5;

/**
 * The choices of one mode as a radio group. Arrows move the focus, Space, Enter or a press applies:
 * a switch costs time, so moving must not. A choice this machine cannot run keeps its place in the
 * group, and says why; one that it can run says what there is to know before it is pressed. Of many
 * choices, those that cannot run or are only emulated are in a list that the last segment opens.
 */
export class Segments {
  readonly el: HTMLElement;
  private buttons: HTMLButtonElement[] = [];
  private readonly more: HTMLButtonElement;
  private readonly reasons = new Map<string, HTMLElement>();
  private mode: ModeState | null = null;
  private pending: string | null = null;
  private locked = false;
  private builtFrom = '';
  /** What is open was made from. */
  private said = '';
  /** The choice of which a note is open; anything else that is open says whether it can be made. */
  private noted = '';

  constructor(
    private readonly actions: ModeActions,
    private readonly popover: Popover,
  ) {
    this.el = h('div', { class: 'wb-seg', role: 'radiogroup' });
    const attrs = { type: 'button', class: 'more', 'aria-haspopup': 'dialog' };
    this.more = h('button', attrs, 'more', icon('chevron', 12));
    this.more.addEventListener('click', () => this.openMore());
    roving(this.el, () => this.stops());
  }

  /** `locked`: nothing can be applied now (no kernel). */
  update(mode: ModeState, locked: boolean): void {
    this.locked = locked;
    this.mode = mode;
    const [shown, folded] = sorted(mode);
    const before = this.buttons;
    const shape = JSON.stringify([shown.map(shapeOf), folded.map(({ value }) => value)]);
    if (shape !== this.builtFrom) {
      this.builtFrom = shape;
      this.build(mode, shown, folded);
    }
    setAttr(this.el, 'aria-label', oneLine(mode.label));
    if (this.pending === mode.value || this.pending === mode.pending) this.pending = null;
    // What this page requested a moment ago, or what the kernel prepares while training goes on.
    const awaited = this.pending ?? (mode.pending || null);
    setAttr(this.el, 'aria-busy', awaited !== null);
    setAttr(this.el, 'aria-disabled', locked ? 'true' : null);
    for (const [i, choice] of shown.entries()) {
      const button = this.buttons[i] as HTMLButtonElement;
      const chosen = choice.value === mode.value;
      setAttr(button, 'aria-checked', chosen);
      setClass(button, 'is-set', chosen && mode.value !== mode.default);
      setClass(button, 'is-pending', choice.value === awaited);
      const reason = this.reasons.get(choice.value);
      if (reason) setText(reason, oneLine(choice.why, 600));
    }
    setClass(
      this.more,
      'is-pending',
      folded.some(({ value }) => value === awaited),
    );
    this.renew(before, folded);
    if (!this.el.contains(document.activeElement)) {
      const chosen = shown.findIndex((choice) => choice.value === mode.value);
      setStop(this.stops(), this.buttons[Math.max(0, chosen)] as HTMLButtonElement);
    }
  }

  /** What the arrows go through. */
  private stops(): HTMLButtonElement[] {
    return this.more.isConnected ? [...this.buttons, this.more] : this.buttons;
  }

  private build(mode: ModeState, shown: ModeChoice[], folded: ModeChoice[]): void {
    const active = document.activeElement as HTMLElement | null;
    const focused = this.el.contains(active) ? active?.dataset['value'] : undefined;
    this.reasons.clear();
    this.buttons = shown.map((choice) => this.segment(choice));
    this.el.replaceChildren(...this.buttons, ...this.reasons.values());
    if (folded.length > 0) {
      const names = folded.map(({ value }) => oneLine(value, 40)).join(', ');
      setAttr(this.more, 'aria-label', `More of ${oneLine(mode.label, 40)}: ${names}`);
      this.buttons.at(-1)?.after(this.more);
    }
    if (active === this.more) this.more.focus();
    else this.buttons.find((button) => button.dataset['value'] === focused)?.focus();
  }

  private segment(choice: ModeChoice): HTMLButtonElement {
    const { value } = choice;
    const text = oneLine(value, 40);
    const label = h('span', { 'data-t': text }, text);
    const attrs = { type: 'button', role: 'radio', 'data-value': value };
    const button = h('button', attrs, choice.available ? null : icon('blocked'), label);
    button.addEventListener('click', () => this.press(value, button));
    if (choice.available && choice.why === '') return button;
    if (!choice.available) setAttr(button, 'aria-disabled', 'true');
    const id = uniqueId('why');
    this.reasons.set(value, h('span', { id, class: 'wb-sr' }));
    setAttr(button, 'aria-describedby', id);
    button.dataset['reason'] = '';
    this.popover.attach(button, () => {
      const now = this.choice(value);
      return now && this.contentAbout(now, !now.available);
    });
    return button;
  }

  /** A choice as the kernel said it last. */
  private choice(value: string): ModeChoice | null {
    return this.mode?.choices.find((choice) => choice.value === value) ?? null;
  }

  /** What to know of a choice, or, where it `explains`, why it cannot be made or that it can by now. */
  private contentAbout(choice: ModeChoice, explains: boolean): PopoverContent {
    const mode = this.mode as ModeState;
    this.said = JSON.stringify(choice);
    this.noted = explains ? '' : choice.value;
    if (explains) return contentOf(mode, choice, this.actions);
    return noteContent(`${mode.label} ${choice.value}`, choice);
  }

  private openMore(): void {
    if (this.mode) this.popover.pin(this.more, this.list(sorted(this.mode)[1]));
  }

  private list(folded: readonly ModeChoice[]): PopoverContent {
    this.said = JSON.stringify(folded);
    const pick = (value: string): void => {
      this.popover.close();
      this.press(value, this.more);
    };
    return moreContent(this.mode?.label ?? '', folded, pick, this.actions);
  }

  /** What is open about a choice says what is known of it now. */
  private renew(before: readonly HTMLButtonElement[], folded: readonly ModeChoice[]): void {
    const open = this.popover.openFor;
    if (open?.dataset['value'] !== this.noted) this.noted = '';
    if (open === this.more) {
      if (folded.length === 0) this.popover.close();
      else if (this.said !== JSON.stringify(folded))
        this.popover.renew(open, this.more, this.list(folded));
    } else if (open && before.includes(open as HTMLButtonElement)) {
      const { value } = open.dataset;
      const choice = this.choice(value ?? '');
      const button = this.buttons.find((one) => one.dataset['value'] === value);
      const explains = this.noted === '' || !choice?.available;
      if (!choice || !button || !(explains || choice.why)) this.popover.close();
      else if (button !== open || this.said !== JSON.stringify(choice))
        this.popover.renew(open, button, this.contentAbout(choice, explains));
    }
  }

  private press(value: string, button: HTMLButtonElement): void {
    const { mode } = this;
    const choice = this.choice(value);
    if (!mode || !choice) return;
    if (!choice.available) return this.popover.pin(button, this.contentAbout(choice, true));
    this.popover.close();
    if (this.locked || this.pending !== null) return;
    // The value in use gives up what is being prepared; otherwise there is nothing to apply.
    if (value === (mode.pending || mode.value)) return;
    this.pending = value;
    this.update(mode, this.locked);
    void this.actions.setMode(mode.name, value).then((done) => {
      // Accepted: the next state shows it. Should it never, stop waiting for it.
      setTimeout(() => this.settle(value), done ? SETTLE_MS : 0);
    });
  }

  private settle(value: string): void {
    if (this.pending !== value) return;
    this.pending = null;
    if (this.mode) this.update(this.mode, this.locked);
  }
}

/** The choices that have a place in the row, and those behind *more*. */
function sorted({ choices, value, default: plain }: ModeState): [ModeChoice[], ModeChoice[]] {
  const rare = (one: ModeChoice): boolean =>
    choices.length >= MANY &&
    (!one.available || one.emulated) &&
    one.value !== value &&
    one.value !== plain;
  return [choices.filter((one) => !rare(one)), choices.filter(rare)];
}

function shapeOf({ value, available, why }: ModeChoice): unknown {
  return [value, available, why !== ''];
}

/** Whether a choice is available here, and why not. */
export function contentOf(mode: ModeState, choice: ModeChoice, checker: Checker): PopoverContent {
  const what = `${mode.label} ${choice.value}`;
  return choice.available
    ? availableContent(`${what} is available here`, choice, checker)
    : reasonContent(`${what} is not available here`, choice, checker);
}
