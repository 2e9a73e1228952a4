/** The graph as a tree-table: the same content for screen readers and for reading numbers. */
import { button, h, on, renew } from './dom';
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
      const isDown = event.key === 'ArrowDown';
      const other = (isDown ? row.nextSibling : row.previousSibling) as HTMLElement | null;
      if (event.key === 'Enter' && !isOperation(item)) onToggle(item);
      else if (event.key === ' ') onSelect(item);
      else if (isDown || event.key === 'ArrowUp') other?.focus();
      else return;
      event.preventDefault();
    });
    // the way in by Tab; arrows go on from there
    if (!body.firstChild) row.tabIndex = 0;
    body.append(row);
  }
  const head = h(
    'tr',
    {},
    ...['Module or operation', ...columns.headings].map((text) =>
      h('th', { scope: 'col', title: columns.titles?.[text] ?? null }, text),
    ),
  );
  const table: HTMLElement = h(
    'table',
    { role: 'treegrid', 'aria-label': 'Operations by module', 'aria-rowcount': rows.length },
    h('thead', {}, head),
    body,
  );
  const parts = [table];
  if (rows.length > limit) {
    const more = () => showTable(element, state, columns, onSelect, onToggle, limit * 2);
    parts.push(button(`Show more of ${formatCount(rows.length)} rows`, more));
  }
  renew(element, parts);
}

function rowOf(state: Drawing, columns: Columns, item: Item, depth: number): HTMLElement {
  const group = isOperation(item) ? null : item;
  const mark = group ? (state.open.has(group) ? '▾' : '▸') : '';
  const name = h('td', {
    style: `padding-left:${depth * 16 - 8}px`,
    title: shorten(nameOf(item), 300),
  });
  name.append(h('span', 'twist', mark), shorten(nameOf(item), 60));
  return h(
    'tr',
    {
      role: 'row',
      tabindex: -1,
      'aria-level': depth,
      'aria-expanded': group && state.open.has(group),
      'aria-selected': item === state.selected,
    },
    name,
    ...columns.cells(item).map((text) => h('td', {}, text)),
  );
}
