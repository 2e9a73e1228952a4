/** The graph as a tree-table: the same content for screen readers and for reading numbers. */
import { button, h, on } from './dom';
import type { Drawing } from './drawing';
import { formatCount, shorten } from './format';
import type { Group, Item } from './groups';
import { isOperation } from './operations';
import { nameOf } from './tree-panel';

const PAGE = 400;

/** The columns after the name. */
export interface Columns {
  headings: string[];
  /** What a heading that does not say it all means. */
  titles?: Readonly<Record<string, string>>;
  cells: (item: Item) => string[];
}

/** Fills `element` with the rows of all open boxes, a page at a time. */
export function showTable(
  element: HTMLElement,
  state: Drawing,
  columns: Columns,
  onSelect: (item: Item) => void,
  onToggle: (group: Group) => void,
  limit = PAGE,
): void {
  const rows: { item: Item; depth: number }[] = [];
  const walk = (group: Group, depth: number): void => {
    for (const item of group.children) {
      rows.push({ item, depth });
      if (!isOperation(item) && state.open.has(item)) walk(item, depth + 1);
    }
  };
  walk(state.tree.root, 1);
  const body = h('tbody', {});
  for (const { item, depth } of rows.slice(0, limit)) {
    const row = rowOf(state, columns, item, depth);
    on(row, 'click', () => onSelect(item));
    on(row, 'keydown', (event) => {
      const other = event.key === 'ArrowDown' ? row.nextElementSibling : row.previousElementSibling;
      if (event.key === 'Enter' && !isOperation(item)) onToggle(item);
      else if (event.key === ' ') onSelect(item);
      else if (
        (event.key === 'ArrowDown' || event.key === 'ArrowUp') &&
        other instanceof HTMLElement
      )
        other.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    body.append(row);
  }
  const head = h(
    'tr',
    {},
    ...['Module or operation', ...columns.headings].map((text) =>
      h('th', { scope: 'col', title: columns.titles?.[text] ?? null }, text),
    ),
  );
  const table = h(
    'table',
    { role: 'treegrid', 'aria-label': 'Operations by module', 'aria-rowcount': rows.length },
    h('thead', {}, head),
    body,
  );
  element.replaceChildren(table);
  if (rows.length > limit) {
    const more = () => showTable(element, state, columns, onSelect, onToggle, limit * 2);
    element.append(button(`Show more of ${formatCount(rows.length)} rows`, more));
  }
}

function rowOf(state: Drawing, columns: Columns, item: Item, depth: number): HTMLElement {
  const group = isOperation(item) ? null : item;
  const mark = group ? (state.open.has(group) ? '▾' : '▸') : '';
  const name = h('td', {
    style: `padding-left:${depth * 16 - 8}px`,
    title: shorten(nameOf(item), 300),
  });
  name.append(h('span', { class: 'twist' }, mark), shorten(nameOf(item), 60));
  return h(
    'tr',
    {
      role: 'row',
      tabindex: -1,
      'aria-level': depth,
      'aria-expanded': group ? String(state.open.has(group)) : null,
      'aria-selected': item === state.selected ? 'true' : 'false',
    },
    name,
    ...columns.cells(item).map((text) => h('td', {}, text)),
  );
}
