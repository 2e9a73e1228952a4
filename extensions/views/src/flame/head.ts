/** What stands over the flame: how it is drawn, and the way from everything to what fills it. */
import { button, h, link } from '../graph/dom';
import { formatBytes, formatShare, plural, shorten } from '../graph/format';
import type { FlameSums } from './sums';
import type { FlameTree } from './tree';

const MOST_CRUMBS = 6;

interface HeadEvents {
  zoom: (node: number) => void;
  only: (node: number) => void;
  fold: (fold: boolean) => void;
}

export class FlameHead {
  readonly element = h('div', {});
  readonly library: HTMLElement;
  private readonly said = h('span', { class: 'wv-said' });
  private readonly crumbs = h('nav', { class: 'wv-crumbs', 'aria-label': 'Part that is shown' });

  constructor(
    controls: readonly HTMLElement[],
    private readonly events: HeadEvents,
  ) {
    const box = h('input', {
      type: 'checkbox',
      onchange: () => events.fold(!box.checked),
    });
    this.library = h(
      'label',
      { title: 'Frames of installed packages and of the interpreter' },
      box,
      'Library frames',
    );
    const head = h('div', { class: 'wv-part' }, h('b', {}, 'Allocated by'), this.said);
    head.append(h('span', { class: 'wv-space' }), this.library, ...controls);
    this.element.append(head, this.crumbs);
  }

  show(tree: FlameTree, sums: FlameSums, top: number, said: string): void {
    this.said.textContent = said;
    this.crumbs.hidden = top === 0;
    if (top === 0) return;
    const path = tree.path(top);
    const shown = path.slice(-MOST_CRUMBS);
    const parts: (Node | string)[] = [link(tree.name(0), () => this.events.zoom(0))];
    if (shown.length < path.length) parts.push(' › …');
    for (const node of shown) {
      const name = shorten(tree.name(node), 40);
      const last = node === top;
      const text = last ? h('b', { title: tree.place(node) }, name) : this.way(tree, node, name);
      parts.push(' › ', text);
    }
    const share = formatShare((sums.total[top] ?? 0) / Math.max(1, sums.total[0] ?? 0));
    const size = formatBytes(sums.total[top] ?? 0);
    const held = ` ${size}, ${share}, ${plural(sums.blocks[top] ?? 0, 'block')}`;
    const only = button('Only this', () => this.events.only(top), {
      title: 'Chart, map and tables then show these blocks alone',
    });
    const back = button('Back', () => this.events.zoom(path[path.length - 2] ?? 0), {}, 'Esc');
    const focused = this.crumbs.contains(document.activeElement)
      ? document.activeElement?.textContent
      : null;
    this.crumbs.replaceChildren(...parts, h('span', { class: 'wv-note' }, held), only, back);
    for (const one of [only, back]) if (one.textContent === focused) one.focus();
  }

  private way(tree: FlameTree, node: number, name: string): HTMLElement {
    return link(name, () => this.events.zoom(node), tree.place(node));
  }
}
