import type { BadgeKind, ModeState } from '@torch-workbench/records';
import { h, setAttr, setShown, setText } from '../dom';
import { oneLine } from '../format';
import { icon, type IconName } from '../icons';
import type { Popover } from './popover';
import { blockedChoice, type Checker, reasonContent } from './reason';
import { contentOf } from './segments';

const ICONS: Readonly<Record<BadgeKind, IconName>> = {
  good: 'up',
  bad: 'down',
  baseline: 'dash',
  none: 'dash',
  todo: 'clock',
  warn: 'blocked',
};

/**
 * The measured effect of a mode: line 1 the effect, line 2 its cost or what to know, the numbers
 * behind both in the tooltip. A badge that needs something opens the popover with the remedy.
 */
export class BadgeView {
  readonly el = h('div', { class: 'wb-badge-place' });
  private key = '';
  /** The choice that its popover is about. */
  private about = '';

  constructor(
    private readonly popover: Popover,
    private readonly checker: Checker,
  ) {}

  update(mode: ModeState): void {
    const { badge } = mode;
    const key = JSON.stringify([badge, badge.kind === 'warn' ? mode.choices : null]);
    if (key === this.key) return;
    this.key = key;
    const focused = this.el.contains(document.activeElement);
    const open = this.popover.openFor;
    const shown = open !== null && this.el.contains(open) ? open : null;
    const first = h('strong', {}, icon(ICONS[badge.kind], 12), h('span', {}, oneLine(badge.text)));
    const second = h('span', { class: 'detail' });
    setText(second, oneLine(badge.detail));
    setShown(second, badge.detail !== '');
    const classes = `wb-badge is-${badge.kind}`;
    const tooltip = [badge.detail, badge.tooltip].filter(Boolean).join('\n');
    const blocked = badge.kind === 'warn' ? blockedChoice(mode) : undefined;
    if (!blocked) {
      // the place has the tooltip: as figures change it stays open under the pointer
      setAttr(this.el, 'title', tooltip || null);
      this.el.replaceChildren(h('div', { class: classes }, first, second));
      if (shown) this.renewAtChoice(shown, mode);
      return;
    }
    this.about = blocked.value;
    setAttr(this.el, 'title', null);
    const button = h('button', { type: 'button', class: `${classes} wb-badge-btn` }, first, second);
    setAttr(button, 'aria-haspopup', 'dialog');
    const content = (): ReturnType<typeof reasonContent> =>
      reasonContent(`${mode.label} ${badge.text}`, blocked, this.checker);
    this.popover.attach(button, content);
    button.addEventListener('click', () => this.popover.pin(button, content()));
    this.el.replaceChildren(button);
    if (focused) button.focus();
    if (shown) this.popover.renew(shown, button, content());
  }

  /** Nothing is lacking any more, so there is no button to be about: the choice itself says so. */
  private renewAtChoice(shown: HTMLElement, mode: ModeState): void {
    const choice = mode.choices.find(({ value }) => value === this.about);
    const radios = this.el.parentElement?.querySelectorAll<HTMLElement>('[role=radio]') ?? [];
    const radio = [...radios].find((one) => one.dataset['value'] === this.about);
    if (!choice || !radio) return this.popover.close();
    this.popover.renew(shown, radio, contentOf(mode, choice, this.checker));
  }
}
