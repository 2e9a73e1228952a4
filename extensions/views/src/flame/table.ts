/** The flame as a table whose rows open: the same numbers, for reading and for screen readers. */
import { aside, h, link } from '../graph/dom';
import { formatBytes, formatCount, formatShare, shorten } from '../graph/format';
import type { Siblings } from './layout';
import type { FlameSums } from './sums';
import type { FlameTree } from './tree';

const MOST = 400;
/** What holds this much of everything stands open at first. */
const OPEN = 0.1;
const DEEP = 24;

export interface FlameRows {
  tree: FlameTree;
  sums: FlameSums;
  rank: Siblings;
  top: number;
}

export class FlameTable {
  readonly element = h('div', { class: 'wv-rows' });
  private readonly open = new Map<number, boolean>();
  private tree: FlameTree | null = null;
  private state: FlameRows | null = null;
  private focus = -1;

  constructor(private readonly onZoom: (node: number) => void) {
    this.element.addEventListener('keydown', (event) => this.key(event));
  }

  show(state: FlameRows): void {
    if (this.tree !== state.tree) this.open.clear();
    this.tree = state.tree;
    this.state = state;
    const body = h('tbody', {});
    const rows = this.rows(state);
    if (!rows.some(([node]) => node === this.focus)) this.focus = state.top;
    for (const [node, level] of rows.slice(0, MOST)) body.append(this.row(state, node, level));
    if (rows.length > MOST)
      body.append(
        h('tr', {}, h('td', { colspan: 5, class: 'wv-note' }, 'Close some rows for more.')),
      );
    const head = h('tr', {});
    for (const text of ['Call', 'Size', 'Share', 'Its own', 'Blocks'])
      head.append(h('th', { scope: 'col' }, text));
    const attributes = { class: 'wv-holders wv-calls', role: 'treegrid', 'aria-label': 'Calls' };
    const focused = this.element.contains(document.activeElement);
    const scroll = this.element.scrollTop;
    this.element.replaceChildren(h('table', attributes, h('thead', {}, head), body));
    this.element.scrollTop = scroll;
    if (focused) this.rowOf(this.focus)?.focus({ preventScroll: true });
  }

  private rows({ sums, rank, top }: FlameRows): [number, number][] {
    const found: [number, number][] = [];
    const whole = Math.max(1, sums.total[top] ?? 0);
    const visit = (node: number, level: number): void => {
      found.push([node, level]);
      const share = (sums.total[node] ?? 0) / whole;
      if (!this.open.has(node)) this.open.set(node, level === 1 || (share >= OPEN && level < DEEP));
      if (!this.open.get(node) || found.length > MOST) return;
      for (const child of rank.of(node)) if ((sums.total[child] ?? 0) > 0) visit(child, level + 1);
    };
    visit(top, 1);
    return found;
  }

  private row({ tree, sums, top }: FlameRows, node: number, level: number): HTMLElement {
    const bytes = sums.total[node] ?? 0;
    const opens = tree.childrenOf(node).some((child) => (sums.total[child] ?? 0) > 0);
    const open = this.open.get(node) ?? false;
    const mark = h(
      'i',
      { class: 'wv-twist', 'aria-hidden': 'true' },
      opens ? (open ? '▾' : '▸') : '',
    );
    if (opens) mark.addEventListener('click', () => this.toggle(node));
    const name = link(shorten(tree.name(node), 80), () => this.onZoom(node), 'Show it alone');
    name.tabIndex = -1;
    const indent = `padding-left:${6 + 14 * Math.min(level - 1, 40)}px`;
    const call = h('td', { style: indent }, mark, name, aside(shorten(tree.place(node), 80)));
    const own = sums.own[node] ?? 0;
    return h(
      'tr',
      {
        role: 'row',
        tabindex: node === this.focus ? 0 : -1,
        'aria-level': level,
        'aria-expanded': opens ? String(open) : null,
        'data-node': node,
      },
      call,
      h('td', { title: `${formatCount(bytes)} B` }, formatBytes(bytes)),
      h('td', {}, formatShare(bytes / Math.max(1, sums.total[top] ?? 0))),
      h('td', {}, own > 0 ? formatBytes(own) : '0'),
      h('td', {}, formatCount(sums.blocks[node] ?? 0)),
    );
  }

  private toggle(node: number, open = !this.open.get(node)): void {
    this.open.set(node, open);
    this.focus = node;
    if (this.state) this.show(this.state);
    this.rowOf(node)?.focus({ preventScroll: true });
  }

  private rowOf(node: number): HTMLElement | null {
    return this.element.querySelector<HTMLElement>(`[data-node="${node}"]`);
  }

  private go(row: Element | null | undefined): void {
    if (!(row instanceof HTMLElement) || row.dataset['node'] === undefined) return;
    const before = this.rowOf(this.focus);
    if (before) before.tabIndex = -1;
    this.focus = Number(row.dataset['node']);
    row.tabIndex = 0;
    row.focus();
  }

  private key(event: KeyboardEvent): void {
    const row = this.rowOf(this.focus);
    if (!row || !row.contains(event.target as Node)) return;
    const expanded = row.getAttribute('aria-expanded');
    if (event.key === 'ArrowDown') this.go(row.nextElementSibling);
    else if (event.key === 'ArrowUp') this.go(row.previousElementSibling);
    else if (event.key === 'ArrowRight' && expanded === 'false') this.toggle(this.focus, true);
    else if (event.key === 'ArrowLeft' && expanded === 'true') this.toggle(this.focus, false);
    else if (event.key === 'ArrowLeft') this.go(this.rowOf(this.tree?.parent[this.focus] ?? -1));
    else if (event.key === 'Enter') this.onZoom(this.focus);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
