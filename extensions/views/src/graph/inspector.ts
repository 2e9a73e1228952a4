/** Everything known about the selection, on the right. */
import { button, facts, h, section, sourceCard } from './dom';
import { formatBytes, formatCount, formatNumber, oneLine, plural, shorten } from './format';
import { size, type Group, type Item } from './groups';
import type { Operation } from './operations';
import type { GraphState } from './state';
import { nameOf, totals } from './tree-panel';

/** Fills the inspector; `onSelect` hears of a name that was clicked. */
export function inspect(
  element: HTMLElement,
  state: GraphState,
  onSelect: (item: Item) => void,
  onToggle: (group: Group) => void,
): void {
  const { selected } = state;
  element.replaceChildren();
  if (!selected || selected === state.tree.root) capture(element, state, onSelect);
  else if (selected.kind === 'operation') operation(element, state, selected, onSelect);
  else group(element, state, selected, onSelect, onToggle);
  element.scrollTop = 0;
}

function head(state: GraphState, item: Item, title: string, note: string): HTMLElement {
  const path = state.path(item).map(nameOf).join(' › ');
  return h(
    'section',
    { class: 'wv-sec' },
    h('div', { class: 'wv-note', style: 'overflow-wrap:anywhere' }, shorten(path, 160)),
    h('h2', { title: shorten(title, 1000) }, shorten(title, 120)),
    h('div', { class: 'wv-note' }, shorten(note, 80)),
  );
}

function operation(
  element: HTMLElement,
  state: GraphState,
  item: Operation,
  onSelect: (item: Item) => void,
): void {
  const { record } = state;
  const module = record.modules[item.module];
  const first =
    record.strings[Number(record.node_type[item.rows[item.rows.length - 1] ?? 0])] ?? '';
  const note = `operation ${formatCount(item.id + 1)} of ${formatCount(state.operations.length)}`;
  const top = head(state, item, item.op, note);
  top.append(h('div', { class: 'wv-mono', title: first }, shorten(first, 48)));
  element.append(top);
  const source = record.sources[item.source];
  if (item.source >= 0 && source) element.append(sourceCard(source));
  const inputs = state.flows.filter(({ to }) => to === item.id).slice(0, 6);
  const rows: [string, string][] = inputs.map(({ from, bytes }, index) => {
    const producer = state.operations[from];
    return [
      index === 0 ? 'In' : '',
      `${producer?.shape ?? ''} ${producer?.dtype ?? ''} · ${formatBytes(bytes)}`,
    ];
  });
  rows.push(['Out', `${item.shape} ${item.dtype} · ${formatBytes(item.outputBytes)}`]);
  if (module)
    rows.push(['Module', `${module.path || '(model)'}${module.cls ? ` · ${module.cls}` : ''}`]);
  element.append(section('Tensors', '', facts(rows)));
  element.append(saved(state, item));
  if (item.leaves.length > 0) {
    const list = item.leaves.map((leaf) => [
      oneLine(leaf.name.split('.').pop() ?? leaf.name),
      leaf.shape,
      formatBytes(leaf.bytes),
    ]);
    element.append(section('Parameters', '', table(['Name', 'Shape', 'Bytes'], list)));
  }
  element.append(neighbours(state, item, onSelect));
}

function saved(state: GraphState, item: Operation): HTMLElement {
  const { record } = state;
  const rows = item.rows
    .map((row) => [
      record.strings[Number(record.node_type[row])] ?? '',
      formatBytes(Number(record.node_saved_bytes[row])),
      formatBytes(Number(record.node_shared_bytes[row])),
    ])
    .slice(0, 40);
  const counted = `${formatBytes(item.saved)} counted here`;
  const body = table(['Backward node', 'Here first', 'Held before'], rows);
  const exact = h(
    'p',
    { class: 'wv-note' },
    `${formatCount(item.saved)} B held first by this operation.`,
  );
  return section('Saved for backward', counted, body, exact);
}

function neighbours(state: GraphState, item: Item, onSelect: (item: Item) => void): HTMLElement {
  const { before, after } = state.neighbours(item);
  const list = h('div', {});
  const add = (label: string, items: Item[]): void => {
    for (const other of items.slice(0, 8)) {
      const name = other.kind === 'operation' ? other.op : other.title;
      const link = h('button', { type: 'button', class: 'wv-link' }, shorten(name, 40));
      link.addEventListener('click', () => onSelect(other));
      const where = state.path(other).slice(1).map(nameOf).join(' › ');
      list.append(
        h('p', {}, h('span', { class: 'wv-note' }, `${label} `), link, ` ${shorten(where, 60)}`),
      );
    }
    if (items.length > 8) list.append(h('p', { class: 'wv-note' }, `and ${items.length - 8} more`));
  };
  add('from', before);
  add('to', after);
  return section('Data flow', '', list);
}

function group(
  element: HTMLElement,
  state: GraphState,
  item: Group,
  onSelect: (item: Item) => void,
  onToggle: (group: Group) => void,
): void {
  const open = state.open.has(item);
  const share = state.tree.root.saved > 0 ? (item.saved / state.tree.root.saved) * 100 : 0;
  element.append(head(state, item, item.title, item.cls || 'stretch of the forward pass'));
  const rows: [string, string][] = [
    ['Operations', formatCount(size(item))],
    ['Saved', `${formatBytes(item.saved)} · ${share.toFixed(share < 10 ? 1 : 0)} % of the graph`],
    ['Exactly', `${formatCount(item.saved)} B`],
  ];
  if (item.path) rows.push(['Path', oneLine(item.path.slice(0, 400))]);
  const last = state.operations[item.end - 1];
  if (last) rows.push(['Out', `${last.shape} ${last.dtype}`]);
  element.append(section('Module', '', facts(rows)));
  element.append(largest(state, state.operations.slice(item.start, item.end), onSelect));
  const toggle = button(open ? 'Collapse' : 'Open', () => onToggle(item), {}, 'Enter');
  element.append(h('section', { class: 'wv-sec' }, toggle));
}

function largest(
  state: GraphState,
  operations: readonly Operation[],
  onSelect: (item: Item) => void,
): HTMLElement {
  const top = operations
    .filter(({ saved: bytes }) => bytes > 0)
    .sort((a, b) => b.saved - a.saved)
    .slice(0, 8);
  const body = h('tbody', {});
  for (const item of top) {
    const link = h('button', { type: 'button', class: 'wv-link' }, shorten(item.op, 24));
    link.addEventListener('click', () => onSelect(item));
    const path = state.record.modules[item.module]?.path ?? '';
    body.append(
      h(
        'tr',
        {},
        h('td', {}, link),
        h('td', { title: shorten(path, 300) }, shorten(path, 22)),
        h('td', {}, formatBytes(item.saved)),
      ),
    );
  }
  const none = h('p', { class: 'wv-note' }, 'Nothing is saved for backward here.');
  return section('Largest savers', '', top.length > 0 ? h('table', {}, body) : none);
}

function capture(element: HTMLElement, state: GraphState, onSelect: (item: Item) => void): void {
  const { record } = state;
  const note = plural(state.operations.length, 'operation');
  element.append(head(state, state.tree.root, record.title || 'Graph', note));
  const rows: [string, string][] = [['Model', record.model]];
  if (record.step !== null) rows.push(['Step', formatCount(record.step)]);
  if (record.loss !== null) rows.push(['Loss', formatNumber(record.loss)]);
  rows.push(
    ['Device', record.device],
    ['Saved', `${formatBytes(record.saved_bytes)} · ${formatCount(record.saved_bytes)} B`],
  );
  element.append(section('Capture', '', facts(rows)));
  element.append(largest(state, [...state.operations], onSelect));
  element.append(section('What is counted', '', ...totals(state).map((text) => h('p', {}, text))));
  if (record.notes.length > 0) {
    const notes = h(
      'ul',
      {},
      ...record.notes.map((text) => h('li', {}, oneLine(text.slice(0, 600)))),
    );
    element.append(section('What this capture could not know', '', notes));
  }
}

function table(headings: string[], rows: string[][]): HTMLElement {
  return h(
    'table',
    {},
    h('thead', {}, h('tr', {}, ...headings.map((text) => h('th', { scope: 'col' }, text)))),
    h(
      'tbody',
      {},
      ...rows.map((row) =>
        h(
          'tr',
          {},
          ...row.map((text) => h('td', { title: shorten(text, 300) }, shorten(text, 44))),
        ),
      ),
    ),
  );
}
