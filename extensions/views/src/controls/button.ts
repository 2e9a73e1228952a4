import { h, setAttr, setClass, setText } from '../dom';
import { icon, type IconName } from '../icons';

export interface ButtonState {
  readonly label?: string;
  readonly icon?: IconName;
  readonly primary?: boolean;
  /** Why it cannot be pressed now; it stays focusable so that the reason can be read. */
  readonly disabled?: string | boolean;
  readonly title?: string;
}

/** A real `<button>` whose state is patched, never rebuilt. */
export class Button {
  readonly el: HTMLButtonElement;
  private readonly text: HTMLSpanElement;
  private shownIcon: IconName | undefined;

  /** `trailing` is a second icon, after the word. */
  constructor(classes: string, state: ButtonState, onPress: () => void, trailing?: IconName) {
    this.text = h('span');
    this.el = h('button', { type: 'button', class: `wb-btn ${classes}`.trim() }, this.text);
    if (trailing) this.el.append(icon(trailing, 12));
    this.el.addEventListener('click', () => {
      if (!this.disabled) onPress();
    });
    this.set(state);
  }

  get disabled(): boolean {
    return this.el.getAttribute('aria-disabled') === 'true';
  }

  set(state: ButtonState): void {
    if (state.label !== undefined) setText(this.text, state.label);
    if (state.icon !== undefined && state.icon !== this.shownIcon) {
      if (this.shownIcon) this.el.firstElementChild?.remove();
      this.el.prepend(icon(state.icon, this.el.classList.contains('is-folding') ? 12 : 16));
      this.shownIcon = state.icon;
    }
    if (state.primary !== undefined) setClass(this.el, 'is-primary', state.primary);
    if (state.disabled !== undefined) {
      setAttr(this.el, 'aria-disabled', state.disabled !== false ? 'true' : null);
    }
    const reason = typeof state.disabled === 'string' ? state.disabled : undefined;
    setAttr(this.el, 'title', reason ?? state.title ?? null);
  }
}

/** A button that is only an icon; `label` is what it does, in full. */
export function iconButton(name: IconName, label: string, onPress: () => void): HTMLButtonElement {
  const attrs = { type: 'button', class: 'wb-btn is-icon', 'aria-label': label, title: label };
  const button = h('button', attrs, icon(name));
  button.addEventListener('click', (event) => {
    event.stopPropagation();
    onPress();
  });
  return button;
}

/** Writes to the clipboard; pages without one (plain http) say so by resolving to false. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
