import { iconButton } from '../controls/button';
import { h, setShown, setText } from '../dom';
import { icon } from '../icons';

export interface Notice {
  readonly el: HTMLElement;
  /** Shows one sentence; an empty one hides the row. */
  show(message: string): void;
}

/** What a command was refused for, under the panel, until it is dismissed or the next one works. */
export function errorNotice(): Notice {
  const text = h('span', { class: 'text' });
  const close = iconButton('close', 'Dismiss', () => show(''));
  const line = h('div', { class: 'wb-row wb-notice', role: 'alert' }, icon('error'), text, close);
  setShown(line, false);
  const show = (message: string): void => {
    setText(text, message.slice(0, 2_000));
    setShown(line, message !== '');
  };
  return { el: line, show };
}
