/** The drawing: hover names a bar, a click enters it, arrows walk from bar to bar. */
import { h } from '../graph/dom';
import { formatBytes, formatCount, formatShare, plural } from '../graph/format';
import type { Palette } from '../graph/theme';
import { perFrame } from '../dom';
import { layFlame, ROW, type Bar } from './layout';
import { outline, paintFlame } from './paint';
import type { FlameRows } from './table';
import { pointIn } from '../memory/map-tip';
import { categoryLabel } from '../memory/series';

const SIDE = 16;

export interface FlameState extends FlameRows {
  palette: Palette;
  found: ((node: number) => boolean) | null;
  chosen: ReadonlySet<number>;
}

export class FlameCanvas {
  private readonly canvas = h('canvas', {
    class: 'wv-bars',
    tabindex: 0,
    role: 'application',
    'aria-label':
      'Calls from the outermost down, as wide as their bytes. Arrows walk, Enter enters, Escape leaves; the table has the same numbers.',
  });
  private readonly scroll = h('div', { class: 'wv-mapscroll' }, this.canvas);
  private readonly tip = h('div', { class: 'wv-tip', hidden: true });
  readonly element = h('div', { class: 'wv-flamebody' }, this.scroll, this.tip);
  private state: FlameState | null = null;
  private bars: Bar[] = [];
  private hover: number | null = null;
  /** Where the keyboard is. */
  private cursor: number | null = null;
  private readonly next = perFrame(() => this.draw());

  constructor(
    private readonly events: { zoom: (node: number) => void; say: (text: string) => void },
  ) {
    const { canvas } = this;
    const at = (event: MouseEvent): number | null => {
      const [x, y] = pointIn(canvas, event);
      return this.barAt(x - SIDE, y)?.node ?? null;
    };
    canvas.addEventListener('pointermove', (event) => this.point(at(event), event));
    canvas.addEventListener('pointerleave', () => this.point(null));
    canvas.addEventListener('click', (event) => {
      const node = at(event);
      if (node !== null) this.enter(node);
    });
    canvas.addEventListener('blur', () => this.next.request());
  }

  dispose(): void {
    this.next.cancel();
  }

  show(state: FlameState): void {
    if (this.state?.tree !== state.tree) this.cursor = null;
    this.state = state;
    this.next.request();
  }

  /** Arrows walk along callers, calls and neighbours. */
  key(event: KeyboardEvent): boolean {
    const { state, bars } = this;
    if (!state || event.target !== this.canvas) return false;
    const bar = bars.find(({ node }) => node === this.cursor) ?? bars[0];
    if (!bar) return false;
    if (event.key === 'Enter') {
      this.enter(bar.node);
      return true;
    }
    const next = this.beside(bar, event.key);
    if (next === undefined) return false;
    this.cursor = next?.node ?? bar.node;
    this.events.say(this.words(this.cursor).join(', '));
    this.reveal();
    this.next.request();
    return true;
  }

  /** The bar that an arrow leads to; null for none, undefined for another key. */
  private beside(bar: Bar, key: string): Bar | null | undefined {
    const { bars } = this;
    const row = bars.filter((one) => one.row === bar.row);
    if (key === 'ArrowDown')
      return bars.find((one) => this.state?.tree.parent[one.node] === bar.node) ?? null;
    if (key === 'ArrowUp')
      return bars.find((one) => one.node === this.state?.tree.parent[bar.node]) ?? null;
    if (key === 'ArrowLeft') return row[row.indexOf(bar) - 1] ?? null;
    if (key === 'ArrowRight') return row[row.indexOf(bar) + 1] ?? null;
    return undefined;
  }

  private reveal(): void {
    const row = this.bars.find(({ node }) => node === this.cursor)?.row ?? 0;
    const { scroll } = this;
    if (row * ROW < scroll.scrollTop) scroll.scrollTop = row * ROW;
    const below = (row + 1) * ROW - scroll.clientHeight;
    if (below > scroll.scrollTop) scroll.scrollTop = below;
  }

  /** A click on what fills the width already leads back. */
  private enter(node: number): void {
    const { state } = this;
    if (!state) return;
    this.cursor = null;
    this.events.zoom(node === state.top ? Math.max(0, state.tree.parent[node] ?? 0) : node);
  }

  private draw(): void {
    const { state, canvas } = this;
    const width = this.scroll.clientWidth - 2 * SIDE;
    const context = canvas.getContext('2d');
    if (!state || !context || width < 60) return;
    const { sums, rank, top, palette } = state;
    this.bars = layFlame(sums, rank, top, width);
    const height = ROW * (1 + this.bars.reduce((most, { row }) => Math.max(most, row), 0)) + 4;
    const ratio = devicePixelRatio;
    canvas.width = Math.round((width + 2 * SIDE) * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.cssText = `width:${width + 2 * SIDE}px;height:${height}px`;
    context.setTransform(ratio, 0, 0, ratio, SIDE * ratio, 0);
    paintFlame({ ...state, context }, this.bars);
    const focused = document.activeElement === canvas ? (this.cursor ?? top) : null;
    const shown = (node: number | null): Bar | undefined =>
      this.bars.find((bar) => bar.node === node);
    const [keyed, pointed] = [shown(focused), shown(this.hover)];
    if (pointed) outline({ context, palette }, pointed, 1.5, palette.ink);
    if (keyed && this.cursor !== null) outline({ context, palette }, keyed, 2.5);
  }

  private barAt(x: number, y: number): Bar | undefined {
    const row = Math.floor(y / ROW);
    return this.bars.find(
      (bar) => bar.row === row && x >= bar.x && x < Math.max(bar.x + bar.width, bar.x + 1),
    );
  }

  /** Outlines a bar and says what it is; nothing moves. */
  private point(node: number | null, event?: MouseEvent): void {
    const { tip } = this;
    tip.hidden = node === null || !event;
    this.canvas.style.cursor = node === null ? '' : 'pointer';
    if (node !== null && event) {
      const [name = '', ...lines] = this.words(node);
      tip.replaceChildren(h('b', {}, name), ...lines.map((line) => h('div', {}, line)));
      const box = this.element.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      tip.style.left = `${Math.max(4, Math.min(box.width - 290, x + 12))}px`;
      tip.style.top = y > box.height - 110 ? `${Math.max(0, y - 96)}px` : `${y + 16}px`;
    }
    if (node === this.hover) return;
    this.hover = node;
    this.next.request();
  }

  /** Its name, where it is, and what it holds. */
  private words(node: number): string[] {
    const { state } = this;
    if (!state) return [];
    const { tree, sums } = state;
    const bytes = sums.total[node] ?? 0;
    const share = formatShare(bytes / Math.max(1, sums.total[0] ?? 0));
    const own = sums.own[node] ?? 0;
    const parts = sums.parts
      .map((part, category) => [part?.[node] ?? 0, category] as const)
      .filter(([size]) => size > 0)
      .sort(([a], [b]) => b - a)
      .slice(0, 3)
      .map(([size, category]) => `${categoryLabel(category)} ${formatBytes(size)}`);
    return [
      tree.name(node),
      tree.place(node),
      `${formatBytes(bytes)} · ${formatCount(bytes)} B · ${share} · ${plural(sums.blocks[node] ?? 0, 'block')}`,
      own > 0 && own < bytes ? `${formatBytes(own)} of it its own` : '',
      parts.join(', '),
    ].filter(Boolean);
  }
}
