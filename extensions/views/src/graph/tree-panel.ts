/** The modules on the left, with the bytes each one saved. Only the rows in view are in the page. */
import { uniqueId } from '../dom';
import { aside, h, on } from './dom';
import { formatBytes, plural, shorten } from './format';
import { countOps, countRepeats, isInside, type Group, type Item } from './groups';
import type { Drawing } from './drawing';
import { isOperation } from './operations';
import { parametersIn } from './parameters';

const ROW = 24;
const SPARE = 8;

interface Row {
  item: Item;
  depth: number;
}

/** What the panel says of every item, and of all of them at its foot. */
export interface TreeFace<S> {
  heading: string;
  figures: (item: Item, state: S) => readonly HTMLElement[];
  foot: (state: S) => readonly string[];
}

export interface TreePanel<S> {
  element: HTMLElement;
  show: (state: S) => void;
  /** Shows what the drawing has open, and the selection. */
  update: () => void;
}

/** What an item is called in lists. */
export function nameOf(item: Item): string {
  if (isOperation(item)) return item.name;
  return item.kind === 'repeat' ? `${item.title} × ${countRepeats(item)}` : item.title;
}

/** What a module named by its number is a call of: `0` alone says nothing. */
function classOf(item: Item, { record }: Drawing): string {
  if (!/^\d/.test(nameOf(item))) return '';
  return isOperation(item) ? (record.modules[item.module]?.cls ?? '') : item.cls;
}

/**
 * Makes the panel with the map at its foot; `onSelect` and `onToggle` hear what was pressed. What is
 * open in the drawing is open here, so there is one set of open boxes.
 */
export function treePanel<S extends Drawing>(
  face: TreeFace<S>,
  map: HTMLElement,
  onSelect: (item: Item) => void,
  onToggle: (group: Group) => void,
): TreePanel<S> {
  const spacer = h('div');
  const active = uniqueId('row');
  const list = { class: 'wv-rows', role: 'tree', tabindex: 0, 'aria-label': 'Modules' };
  const scroller = h('div', { ...list, 'aria-activedescendant': active }, spacer);
  const foot = h('div', 'wv-foot');
  const heading = h('header', {}, h('b', {}, 'Modules'), h('span', {}, face.heading));
  const element = h(
    'aside',
    { class: 'wv-tree', 'aria-label': 'Modules' },
    heading,
    scroller,
    foot,
    map,
  );
  let state: S | null = null;
  let rows: Row[] = [];
  let laid: unknown = null;
  let shown: Item | null = null;

  const collect = (): void => {
    rows = [];
    const walk = (group: Group, depth: number): void => {
      for (const item of group.children) {
        rows.push({ item, depth });
        if (!isOperation(item) && state?.open.has(item)) walk(item, depth + 1);
      }
    };
    if (state) {
      rows.push({ item: state.tree.root, depth: 0 });
      walk(state.tree.root, 1);
    }
    spacer.style.height = `${rows.length * ROW}px`;
  };
  const draw = (): void => {
    if (!state) return;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - SPARE);
    const last = Math.ceil((scroller.scrollTop + (scroller.clientHeight || 800)) / ROW) + SPARE;
    const drawn = state;
    spacer.replaceChildren(
      ...rows.slice(first, last).map((row, index) => {
        const line = rowOf(row, drawn, onToggle, onSelect);
        line.append(...face.figures(row.item, drawn));
        line.style.cssText = `top:${(first + index) * ROW}px;padding-left:${4 + row.depth * 9}px`;
        // the list keeps the focus, as its rows come and go
        if (row.item === drawn.selected) line.id = active;
        return line;
      }),
    );
  };
  scroller.addEventListener('scroll', draw, { passive: true });
  on(scroller, 'keydown', (event) => {
    const at = rows.findIndex(({ item }) => item === state?.selected);
    const row = rows[at];
    const group = row && row.item.kind !== 'operation' && row.item.parent ? row.item : null;
    const open = group && state?.open.has(group);
    const move = (index: number): void => {
      const next = rows[Math.min(rows.length - 1, Math.max(0, index))];
      if (next) onSelect(next.item);
    };
    if (event.key === 'ArrowDown') move(at + 1);
    else if (event.key === 'ArrowUp') move(at - 1);
    else if (group && event.key === (open ? 'ArrowLeft' : 'ArrowRight')) onToggle(group);
    else return;
    event.preventDefault();
  });

  const update = (): void => {
    if (!state) return;
    const { selected, layout } = state;
    if (laid !== layout) collect();
    laid = layout;
    // A person may have scrolled on since it was selected.
    if (shown !== selected) {
      const at = rows.findIndex(({ item }) => item === selected);
      const top = at * ROW;
      if (
        at >= 0 &&
        (top < scroller.scrollTop || top + ROW > scroller.scrollTop + scroller.clientHeight)
      )
        scroller.scrollTop = top - scroller.clientHeight / 3;
    }
    shown = selected;
    draw();
  };
  const show = (next: S): void => {
    state = next;
    foot.replaceChildren(...face.foot(next).map((text) => h('p', {}, text)));
    update();
  };
  return { element, show, update };
}

function rowOf<S extends Drawing>(
  { item, depth }: Row,
  state: S,
  toggle: (group: Group) => void,
  onSelect: (item: Item) => void,
): HTMLElement {
  // The drawing as a whole has no box that closes.
  const group = !isOperation(item) && item.parent ? item : null;
  const open = group && state.open.has(group);
  const twist = h('span', 'twist', group ? (open ? '▾' : '▸') : '');
  const label = nameOf(item);
  const name = h('span', { class: 'name', title: shorten(label, 300) }, shorten(label, 80));
  const cls = classOf(item, state);
  if (cls) name.append(aside(` ${shorten(cls, 40)}`));
  const row = h(
    'div',
    {
      class: 'wv-row',
      role: 'treeitem',
      'aria-level': depth + 1,
      'aria-selected': item === state.selected,
      'aria-expanded': group && open,
    },
    twist,
    name,
  );
  on(twist, 'click', (event) => {
    if (!group) return;
    event.stopPropagation();
    toggle(group);
  });
  on(row, 'click', () => onSelect(item));
  if (group) on(row, 'dblclick', () => toggle(group));
  return row;
}

/** An item's saved bytes, and their share of all. */
export function byteFigures(item: Item, { tree }: Drawing): HTMLElement[] {
  if (isInside(item)) return [];
  const { saved } = item;
  const share = saved / Math.max(1, tree.root.saved);
  const meter = h('span', 'meter', h('i', { style: `width:${share * 100}%` }));
  return [h('span', 'bytes', formatBytes(saved)), meter];
}

/** What the capture adds up to, and what it leaves out. */
export function totals(state: Drawing): string[] {
  const { record } = state;
  const parameters = parametersIn(state.operations);
  const held = [
    record.parameter_bytes > 0 ? `${formatBytes(record.parameter_bytes)} parameters` : '',
    record.buffer_bytes > 0 ? `${formatBytes(record.buffer_bytes)} buffers` : '',
    record.input_bytes > 0 ? `${formatBytes(record.input_bytes)} inputs` : '',
  ].filter(Boolean);
  return [
    `${countOps(state.tree.root, 'operation')}, ${plural(parameters.length, 'parameter')}, ${formatBytes(record.saved_bytes)} saved for backward.`,
    held.length > 0 ? `Not counted, because held anyway: ${held.join(', ')}.` : '',
  ].filter(Boolean);
}
