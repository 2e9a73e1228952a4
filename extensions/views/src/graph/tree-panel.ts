/** The modules on the left, with the bytes each one saved. Only the rows in view are in the page. */
import { h } from './dom';
import { formatBytes, plural, shorten } from './format';
import { countOps, countRepeats, isInside, type Group, type Item } from './groups';
import type { Drawing } from './drawing';
import { parametersIn } from './parameters';

const ROW = 24;
const SPARE = 8;
const FIRST_LOOK = 40;

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
  /** Marks the selection and opens what hides it. */
  update: () => void;
  /** Opens or closes a group as it is in the drawing. */
  set: (group: Group, to: boolean) => void;
}

/** What an item is called in lists. */
export function nameOf(item: Item): string {
  if (item.kind === 'operation') return item.name;
  return item.kind === 'repeat' ? `${item.title} × ${countRepeats(item)}` : item.title;
}

/** Makes the panel with the map at its foot; `onSelect` and `onToggle` hear what was pressed. */
export function treePanel<S extends Drawing>(
  face: TreeFace<S>,
  map: HTMLElement,
  onSelect: (item: Item) => void,
  onToggle: (group: Group) => void,
): TreePanel<S> {
  const spacer = h('div', { style: 'position:relative' });
  const scroller = h(
    'div',
    { class: 'wv-rows', role: 'tree', tabindex: 0, 'aria-label': 'Modules' },
    spacer,
  );
  const foot = h('div', { class: 'wv-foot' });
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
  const open = new Set<Group>();

  const collect = (): void => {
    rows = [];
    const walk = (group: Group, depth: number): void => {
      for (const item of group.children) {
        rows.push({ item, depth });
        if (item.kind !== 'operation' && open.has(item)) walk(item, depth + 1);
      }
    };
    if (state) {
      rows.push({ item: state.tree.root, depth: 0 });
      if (open.has(state.tree.root)) walk(state.tree.root, 1);
    }
    spacer.style.height = `${rows.length * ROW}px`;
  };
  const set = (group: Group, to: boolean): void => {
    if (to) open.add(group);
    else open.delete(group);
    collect();
    draw();
  };
  const toggle = (group: Group): void => {
    const to = !open.has(group);
    set(group, to);
    // the drawing as a whole has no box that closes
    if (state && group.parent && state.open.has(group) !== to) onToggle(group);
  };
  const draw = (): void => {
    if (!state) return;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - SPARE);
    const last = Math.ceil((scroller.scrollTop + (scroller.clientHeight || 800)) / ROW) + SPARE;
    const shown = state;
    spacer.replaceChildren(
      ...rows.slice(first, last).map((row, index) => {
        const line = rowOf(row, open, row.item === shown.selected, toggle, onSelect);
        line.append(...face.figures(row.item, shown));
        line.style.cssText = `position:absolute;left:0;right:0;top:${(first + index) * ROW}px`;
        line.style.paddingLeft = `${4 + row.depth * 9}px`;
        return line;
      }),
    );
  };
  scroller.addEventListener('scroll', draw, { passive: true });
  scroller.addEventListener('keydown', (event) => {
    const at = rows.findIndex(({ item }) => item === state?.selected);
    const row = rows[at];
    const group = row && row.item.kind !== 'operation' ? row.item : null;
    const move = (index: number): void => {
      const next = rows[Math.min(rows.length - 1, Math.max(0, index))];
      if (next) onSelect(next.item);
    };
    if (event.key === 'ArrowDown') move(at + 1);
    else if (event.key === 'ArrowUp') move(at - 1);
    else if (event.key === 'ArrowRight' && group && !open.has(group)) toggle(group);
    else if (event.key === 'ArrowLeft' && group && open.has(group)) toggle(group);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  const update = (): void => {
    if (!state) return;
    const { selected } = state;
    if (selected) {
      const path = state.path(selected);
      if (path.some((group) => !open.has(group))) {
        for (const group of path) open.add(group);
        collect();
      }
      const at = rows.findIndex(({ item }) => item === selected);
      const top = at * ROW;
      if (
        at >= 0 &&
        (top < scroller.scrollTop || top + ROW > scroller.scrollTop + scroller.clientHeight)
      )
        scroller.scrollTop = top - scroller.clientHeight / 3;
    }
    draw();
  };
  const show = (next: S): void => {
    state = next;
    open.clear();
    // As many levels as fit without scrolling far.
    let level: Group[] = [next.tree.root];
    let count = 1;
    while (level.length > 0) {
      count += level.reduce((sum, group) => sum + group.children.length, 0);
      if (count > FIRST_LOOK && level[0] !== next.tree.root) break;
      for (const group of level) open.add(group);
      level = level.flatMap(({ children }) =>
        children.flatMap((c) => (c.kind === 'operation' || c.kind === 'compiled' ? [] : [c])),
      );
    }
    foot.replaceChildren(...face.foot(next).map((text) => h('p', {}, text)));
    collect();
    draw();
  };
  return { element, show, update, set };
}

function rowOf(
  { item, depth }: Row,
  open: ReadonlySet<Group>,
  selected: boolean,
  toggle: (group: Group) => void,
  onSelect: (item: Item) => void,
): HTMLElement {
  const group = item.kind === 'operation' ? null : item;
  const twist = h('span', { class: 'twist' }, group ? (open.has(group) ? '▾' : '▸') : '');
  const label = nameOf(item);
  const name = h('span', { class: 'name', title: shorten(label, 300) }, shorten(label, 80));
  const row = h(
    'div',
    {
      class: 'wv-row',
      role: 'treeitem',
      'aria-level': depth + 1,
      'aria-selected': String(selected),
      'aria-expanded': group ? String(open.has(group)) : null,
    },
    twist,
    name,
  );
  twist.addEventListener('click', (event) => {
    if (!group) return;
    event.stopPropagation();
    toggle(group);
  });
  row.addEventListener('click', () => onSelect(item));
  if (group) row.addEventListener('dblclick', () => toggle(group));
  return row;
}

/** An item's saved bytes, and their share of all. */
export function byteFigures(item: Item, { tree }: Drawing): HTMLElement[] {
  if (isInside(item)) return [];
  const { saved } = item;
  const share = saved / Math.max(1, tree.root.saved);
  const meter = h('span', { class: 'meter' }, h('i', { style: `width:${share * 100}%` }));
  return [h('span', { class: 'bytes' }, formatBytes(saved)), meter];
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
