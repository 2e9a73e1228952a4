import { h, setAttr, setShown, uniqueId } from '../dom';
import { icon } from '../icons';

/** The figures of a chart as a table, behind a button in the chart's header. */
export interface ChartTable {
  readonly button: HTMLButtonElement;
  readonly el: HTMLElement;
  /** Cheap while the table is closed: `rows` is only called when it is shown. */
  update(columns: readonly string[], rows: () => readonly (readonly string[])[]): void;
}

/** An open table is rebuilt at most this often: it is read, not watched. */
const PERIOD_MS = 1_000;

export function chartTable(caption: string): ChartTable {
  const id = uniqueId('table');
  const table = h('table', { class: 'wb-table' });
  const el = h('div', { class: 'wb-table-scroll', id, tabindex: 0, role: 'region' }, table);
  setAttr(el, 'aria-label', `${caption}, table`);
  setShown(el, false);
  const button = h('button', {
    type: 'button',
    class: 'wb-btn is-icon wb-table-button',
    'aria-label': `${caption}: show as a table`,
    title: 'Show as a table',
    'aria-expanded': false,
    'aria-controls': id,
    onclick: () => toggle(),
  });
  button.append(icon('table'));
  let columns: readonly string[] = [];
  let rows: () => readonly (readonly string[])[] = () => [];
  let built = 0;

  const build = (): void => {
    built = Date.now();
    const head = h('tr', {}, ...columns.map((name) => h('th', { scope: 'col' }, name)));
    const body = rows().map((row) => h('tr', {}, ...row.map((cell) => h('td', {}, cell))));
    table.replaceChildren(
      h('caption', { class: 'wb-sr' }, caption),
      h('thead', {}, head),
      h('tbody', {}, ...body),
    );
  };
  const toggle = (): void => {
    const open = el.hidden;
    setShown(el, open);
    setAttr(button, 'aria-expanded', open);
    el.parentElement?.classList.toggle('is-table', open);
    if (open) build();
  };
  return {
    button,
    el,
    update(nextColumns, nextRows) {
      columns = nextColumns;
      rows = nextRows;
      if (!el.hidden && Date.now() - built > PERIOD_MS) build();
    },
  };
}
