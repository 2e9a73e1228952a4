import { h, setText } from '../dom';
import { count } from '../format';
import { icon } from '../icons';
import type { Row } from './context';
import { FactTable } from './facts';

/** A, before the first run: what will run, and the two next clicks. */
export function emptyRow(): Row {
  const epochs = h('span');
  const steps = h(
    'ol',
    { class: 'wb-steps' },
    h(
      'li',
      {},
      h('span', { class: 'n', 'aria-hidden': 'true' }, '1'),
      h('h4', {}, icon('step'), 'Step ', h('span', {}, 'runs one batch')),
      h('p', {}, 'Checks shapes and loss, and shows the first figures.'),
    ),
    h(
      'li',
      {},
      h('span', { class: 'n', 'aria-hidden': 'true' }, '2'),
      h('h4', {}, icon('train'), 'Train ', epochs),
      h('p', {}, 'In the background: edit cells, pause, or change modes at any time.'),
    ),
  );
  const facts = new FactTable();
  const will = h('div', {}, h('p', { class: 'wb-h' }, 'What will run'), facts.el);
  return {
    el: h('div', { class: 'wb-row wb-empty' }, steps, will),
    update({ model }) {
      const { epochs: many, facts: rows } = model.state;
      setText(epochs, `runs ${count(many)} ${many === 1 ? 'epoch' : 'epochs'}`);
      facts.update(rows);
    },
  };
}
