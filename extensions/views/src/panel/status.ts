import { h, setAttr, setClass, setText } from '../dom';
import { oneLine } from '../format';
import { icon, type IconName } from '../icons';

/** A screen reader is notified at most so often. */
const PERIOD_MS = 5_000;

export interface StatusLine {
  readonly el: HTMLElement;
  update(message: string, tone: '' | 'is-warn'): void;
  dispose(): void;
}

/**
 * The one status line. What is seen changes at once; what is spoken is the newest message, at most
 * one every five seconds.
 */
export function statusLine(): StatusLine {
  const text = h('span', { 'aria-hidden': 'true' });
  const spoken = h('span', { class: 'wb-sr', role: 'status', 'aria-live': 'polite' });
  const el = h('div', { class: 'wb-status' }, icon('info'), text, spoken);
  let shownIcon: IconName = 'info';
  let waiting = '';
  let timer: ReturnType<typeof setTimeout> | undefined;
  const speak = (): void => {
    timer = undefined;
    if (waiting === spoken.textContent) return;
    setText(spoken, waiting);
    timer = setTimeout(speak, PERIOD_MS);
  };
  return {
    el,
    update(message, tone) {
      const shown = oneLine(message, 240);
      const name = tone === '' ? 'info' : 'warning';
      if (name !== shownIcon) {
        shownIcon = name;
        el.firstElementChild?.replaceWith(icon(name));
      }
      setClass(el, 'is-warn', tone === 'is-warn');
      setText(text, shown);
      setAttr(text, 'title', oneLine(message, 1_000) || null);
      waiting = shown;
      if (timer === undefined) speak();
    },
    dispose: () => clearTimeout(timer),
  };
}
