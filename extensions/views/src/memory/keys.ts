/** The legend of the chart: live bytes by category; a click hides or shows one. */
import { h } from '../graph/dom';
import { formatBytes } from '../graph/format';
import { composition } from './sentence';
import type { Series } from './series';
import { swatch } from './tables';

export class Keys {
  readonly element = h('div', { class: 'wv-keys', role: 'group', 'aria-label': 'Categories' });
  private used: boolean[] = [];
  private readonly free = h(
    'span',
    { class: 'wv-state wv-state-f' },
    'free, reserved ',
    h('span', { class: 'wv-value' }),
  );
  private readonly line = h('span', { class: 'wv-state wv-state-l' }, 'reserved');

  constructor(private readonly onToggle: (category: number) => void) {}

  /** Starts over for a record; a category that never occurs in it only takes room. */
  open(series: Series): void {
    this.used = series.live.map((values) => values?.some((bytes) => bytes > 0) ?? false);
    this.element.replaceChildren();
  }

  /** Shows the bytes at a position. */
  show(series: Series, position: number, hidden: ReadonlySet<number>): void {
    const parts = composition(series, position).filter(({ category }) => this.used[category]);
    if (!this.element.firstChild) {
      this.element.append(...parts.map(({ category }) => this.keyOf(category)));
      if (series.reserved) this.element.append(this.free, this.line);
    }
    const free = (series.reserved?.[position] ?? 0) - (series.total[position] ?? 0);
    const value = this.free.querySelector('.wv-value');
    if (value) value.textContent = formatBytes(free);
    parts.forEach(({ category, bytes }, index) => {
      const key = this.element.children[index];
      key?.setAttribute('aria-pressed', String(!hidden.has(category)));
      const value = key?.querySelector('.wv-value');
      if (value) value.textContent = formatBytes(bytes);
    });
  }

  private keyOf(category: number): HTMLElement {
    const label = swatch(category);
    label.style.color = 'var(--wb-ink)';
    const value = h('span', { class: 'wv-value' });
    const key = h('button', { type: 'button', title: 'Show or hide' }, label, value);
    key.addEventListener('click', () => this.onToggle(category));
    return key;
  }
}
