import { Button } from '../controls/button';
import { h } from '../dom';
import { oneLine } from '../format';
import type { Row } from './context';

/** The modes on one line, while a message has the room: what was changed is bold. */
export function foldedModes(onShow: () => void): Row {
  const list = h('ul');
  const show = new Button('is-quiet is-folding', { label: 'Show', icon: 'chevron' }, onShow);
  show.el.setAttribute('aria-label', 'Show modes');
  const label = h('span', { class: 'lab' }, 'Modes');
  const el = h('div', { class: 'wb-row wb-modes-line' }, label, list, show.el);
  let shown = '';
  return {
    el,
    update({ model }) {
      const { modes } = model.state;
      const key = JSON.stringify(modes.map((mode) => [mode.label, mode.value, mode.default]));
      if (key === shown) return;
      shown = key;
      const items = modes.map((mode) => {
        const value = oneLine(mode.value, 40);
        const changed = mode.value !== mode.default;
        const name = oneLine(mode.label, 40).toLowerCase();
        return h('li', {}, `${name} `, changed ? h('b', {}, value) : value);
      });
      list.replaceChildren(...items);
    },
  };
}
