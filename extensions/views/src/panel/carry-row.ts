import type { CarryRow } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { h, setAttr, setShown, setText } from '../dom';
import { oneLine } from '../format';
import type { Row } from './context';

const OUTCOMES = ['carried', 'reshaped', 'new', 'dropped'] as const;
const MEANING: Readonly<Record<CarryRow['outcome'], string>> = {
  carried: 'weights and optimizer state kept',
  reshaped: 'shape changed: starts fresh',
  new: 'not in the old model: starts fresh',
  dropped: 'not in the new model',
};

/** What became of every parameter and buffer in the last hot swap: one line, a table behind it. */
export function carryRow(): Row {
  const text = h('span', { class: 'lab' });
  const body = h('tbody');
  const head = ['Name', 'Outcome', 'Before', 'Now'];
  const row = h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)));
  const table = h('table', { class: 'wb-table' }, h('thead', {}, row), body);
  const scroll = h('div', { class: 'wb-table-scroll', tabindex: 0, role: 'region' }, table);
  setAttr(scroll, 'aria-label', 'What the new model took over');
  setShown(scroll, false);
  const show = new Button('is-quiet is-folding', { label: 'Show', icon: 'chevron' }, () => {
    setShown(scroll, scroll.hidden);
    show.set({ label: scroll.hidden ? 'Show' : 'Hide' });
    setAttr(show.el, 'aria-expanded', !scroll.hidden);
  });
  const line = h('div', { class: 'wb-modes-line' }, text, show.el);
  const el = h('div', { class: 'wb-row wb-carry' }, line, scroll);
  let shown: readonly CarryRow[] | null = null;
  return {
    el,
    update({ model }) {
      const { carried } = model.state;
      setShown(el, carried.length > 0);
      if (carried === shown || JSON.stringify(carried) === JSON.stringify(shown)) return;
      shown = carried;
      setText(text, `Model swapped: ${counts(carried)}`);
      const sorted = [...carried].sort(
        (a, b) => OUTCOMES.indexOf(b.outcome) - OUTCOMES.indexOf(a.outcome),
      );
      body.replaceChildren(...sorted.map(carriedRow));
    },
  };
}

function carriedRow(row: CarryRow): HTMLElement {
  const name = h('td', { title: oneLine(row.name, 400) }, h('code', {}, oneLine(row.name, 80)));
  const said = row.note === '' ? row.outcome : `${row.outcome}: ${oneLine(row.note, 200)}`;
  const outcome = h('td', { title: row.note === '' ? MEANING[row.outcome] : '' }, said);
  return h('tr', {}, name, outcome, h('td', {}, row.old_shape), h('td', {}, row.new_shape));
}

/** Of parameters: buffers are in the table. */
function counts(rows: readonly CarryRow[]): string {
  const parts = OUTCOMES.map((outcome) => {
    const many = rows.filter((row) => row.kind === 'parameter' && row.outcome === outcome).length;
    return many > 0 ? `${many} ${outcome}` : '';
  });
  return parts.filter(Boolean).join(', ');
}
