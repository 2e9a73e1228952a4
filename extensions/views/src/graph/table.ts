/** The graph as a tree-table: the same content for screen readers and for reading numbers. */
import { button, h, sourceLabel } from './dom';
import { formatBytes, formatCount, formatNumber, formatSeconds, shorten } from './format';
import { outputGradient } from './gradients';
import { size, type Group, type Item } from './groups';
import type { GraphState } from './state';
import { nameOf } from './tree-panel';

const PAGE = 400;
const HEADINGS = [
  'Module or operation',
  'Call',
  'Operations',
  'Output',
  'Dtype',
  'Saved here first',
  'Held before',
];

/** What is not known of a record gets no column. */
function headings(state: GraphState): string[] {
  const gradient = state.missing('gradient') ? [] : ['Gradient norm', 'Non-finite'];
  const time = state.missing('time') ? [] : ['Forward'];
  const unreached = state.record.unreached.length > 0 ? ['Without gradient'] : [];
  return [...HEADINGS, ...gradient, ...time, ...unreached, 'Source'];
}

function knownCells(state: GraphState, item: Item): string[] {
  const cells: string[] = [];
  if (!state.missing('gradient')) {
    const gradient = outputGradient(item, state.operations);
    cells.push(gradient ? formatNumber(gradient.norm) : 'did not run');
    cells.push(gradient ? formatCount(gradient.nonFinite) : '');
  }
  if (!state.missing('time')) cells.push(item.seconds === null ? '' : formatSeconds(item.seconds));
  if (state.record.unreached.length > 0)
    cells.push(item.kind === 'operation' ? '' : state.unreached.chip(item));
  return cells;
}

/** Fills `element` with the rows of all open boxes, a page at a time. */
export function showTable(
  element: HTMLElement,
  state: GraphState,
  onSelect: (item: Item) => void,
  onToggle: (group: Group) => void,
  limit = PAGE,
): void {
  const rows: { item: Item; depth: number }[] = [];
  const walk = (group: Group, depth: number): void => {
    for (const item of group.children) {
      rows.push({ item, depth });
      if (item.kind !== 'operation' && state.open.has(item)) walk(item, depth + 1);
    }
  };
  walk(state.tree.root, 1);
  const body = h('tbody', {});
  for (const { item, depth } of rows.slice(0, limit)) {
    const row = rowOf(state, item, depth);
    row.addEventListener('click', () => onSelect(item));
    row.addEventListener('keydown', (event) => {
      const other = event.key === 'ArrowDown' ? row.nextElementSibling : row.previousElementSibling;
      if (event.key === 'Enter' && item.kind !== 'operation') onToggle(item);
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
  const head = h('tr', {}, ...headings(state).map((text) => h('th', { scope: 'col' }, text)));
  const table = h(
    'table',
    { role: 'treegrid', 'aria-label': 'Operations by module', 'aria-rowcount': rows.length },
    h('thead', {}, head),
    body,
  );
  element.replaceChildren(table);
  if (rows.length > limit) {
    const more = () => showTable(element, state, onSelect, onToggle, limit * 2);
    element.append(button(`Show more of ${formatCount(rows.length)} rows`, more));
  }
}

function rowOf(state: GraphState, item: Item, depth: number): HTMLElement {
  const group = item.kind === 'operation' ? null : item;
  const mark = group ? (state.open.has(group) ? '▾ ' : '▸ ') : '';
  const name = h('td', {
    style: `padding-left:${depth * 16 - 8}px`,
    title: shorten(nameOf(item), 300),
  });
  name.append(mark + shorten(nameOf(item), 60));
  const source = group ? undefined : state.record.sources[(item as { source: number }).source];
  const where = source ? sourceLabel(source) : '';
  const operation = item.kind === 'operation' ? item : null;
  const cells = [
    shorten(operation?.op ?? group?.cls ?? '', 40),
    formatCount(size(item)),
    shorten(operation?.shape ?? '', 40),
    shorten(operation?.dtype ?? '', 24),
    formatBytes(item.saved),
    operation ? formatBytes(operation.shared) : '',
    ...knownCells(state, item),
    shorten(where, 48),
  ];
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
    ...cells.map((text) => h('td', {}, text)),
  );
}
