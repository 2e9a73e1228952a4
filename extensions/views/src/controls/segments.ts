import type { ModeChoice, ModeState } from '@torch-workbench/records';
import { h, setAttr, setClass, uniqueId } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { Popover } from './popover';
import { noteContent, reasonContent } from './reason';
import { roving, setStop } from './roving';

export interface ModeActions {
  /** Applies a value; resolves to false when the kernel refused (and that was shown). */
  setMode(mode: string, value: string): Promise<boolean>;
  checkAgain(): Promise<boolean>;
}

/** How long an accepted switch may stay without showing in the state. */
const SETTLE_MS = 3_000;

/**
 * The choices of one mode as a radio group. Arrows move the focus, Space, Enter or a press applies:
 * a switch costs time, so moving must not. A choice this machine cannot run keeps its place in the
 * group, and says why; one that it can run says what there is to know before it is pressed.
 */
export class Segments {
  readonly el: HTMLElement;
  private buttons: HTMLButtonElement[] = [];
  private mode: ModeState | null = null;
  private pending: string | null = null;
  private locked = false;
  private builtFrom = '';

  constructor(
    private readonly actions: ModeActions,
    private readonly popover: Popover,
  ) {
    this.el = h('div', { class: 'wb-seg', role: 'radiogroup' });
    roving(this.el, () => this.buttons);
  }

  /** `locked`: nothing can be applied now (no kernel). */
  update(mode: ModeState, locked: boolean): void {
    this.locked = locked;
    this.mode = mode;
    const shape = JSON.stringify(mode.choices);
    if (shape !== this.builtFrom) {
      this.builtFrom = shape;
      this.build(mode);
    }
    setAttr(this.el, 'aria-label', oneLine(mode.label));
    if (this.pending === mode.value || this.pending === mode.pending) this.pending = null;
    // What this page asked for a moment ago, or what the kernel prepares while training goes on.
    const awaited = this.pending ?? (mode.pending || null);
    setAttr(this.el, 'aria-busy', awaited !== null);
    setAttr(this.el, 'aria-disabled', locked ? 'true' : null);
    for (const [i, choice] of mode.choices.entries()) {
      const button = this.buttons[i] as HTMLButtonElement;
      const chosen = choice.value === mode.value;
      setAttr(button, 'aria-checked', chosen);
      setClass(button, 'is-set', chosen && mode.value !== mode.default);
      setClass(button, 'is-pending', choice.value === awaited);
    }
    if (!this.el.contains(document.activeElement)) {
      const chosen = mode.choices.findIndex((choice) => choice.value === mode.value);
      setStop(this.buttons, this.buttons[Math.max(0, chosen)] as HTMLButtonElement);
    }
  }

  private build(mode: ModeState): void {
    const focused = this.buttons.findIndex((button) => button === document.activeElement);
    this.buttons = mode.choices.map((choice) => this.segment(mode, choice));
    const reasons = this.buttons.flatMap((button) => {
      const id = button.getAttribute('aria-describedby');
      const choice = mode.choices[this.buttons.indexOf(button)];
      return id ? [h('span', { id, class: 'wb-sr' }, oneLine(choice?.why ?? '', 600))] : [];
    });
    this.el.replaceChildren(...this.buttons, ...reasons);
    if (focused >= 0) this.buttons[focused]?.focus();
  }

  private segment(mode: ModeState, choice: ModeChoice): HTMLButtonElement {
    const value = oneLine(choice.value, 40);
    const label = h('span', { 'data-t': value }, value);
    const attrs = { type: 'button', role: 'radio', 'data-value': choice.value };
    const button = h('button', attrs, choice.available ? null : icon('blocked'), label);
    button.addEventListener('click', () => this.press(choice, button));
    if (choice.available && choice.why === '') return button;
    if (!choice.available) setAttr(button, 'aria-disabled', 'true');
    setAttr(button, 'aria-describedby', uniqueId('why'));
    button.dataset['reason'] = '';
    const note = `${mode.label} ${choice.value}`;
    this.popover.attach(button, () =>
      choice.available ? noteContent(note, choice) : this.reason(mode, choice),
    );
    return button;
  }

  private reason(mode: ModeState, choice: ModeChoice): ReturnType<typeof reasonContent> {
    const title = `${mode.label} ${choice.value} is not available here`;
    return reasonContent(title, choice, () => this.actions.checkAgain());
  }

  private press(choice: ModeChoice, button: HTMLButtonElement): void {
    const mode = this.mode;
    if (!mode) return;
    if (!choice.available) return this.popover.pin(button, this.reason(mode, choice));
    if (this.locked || this.pending !== null) return;
    // The value in use gives up what is being prepared; otherwise there is nothing to apply.
    if (choice.value === (mode.pending || mode.value)) return;
    this.pending = choice.value;
    this.update(mode, this.locked);
    void this.actions.setMode(mode.name, choice.value).then((done) => {
      // Accepted: the next state shows it. Should it never, stop waiting for it.
      setTimeout(() => this.settle(choice.value), done ? SETTLE_MS : 0);
    });
  }

  private settle(value: string): void {
    if (this.pending !== value) return;
    this.pending = null;
    if (this.mode) this.update(this.mode, this.locked);
  }
}
