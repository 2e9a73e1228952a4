/** A long list, shown some at a time: thousands of rows at once would make a page slow to leave. */
import { button, h } from '../graph/dom';
import { formatCount } from '../graph/format';

/** Rows that are added at once. */
export const AT_ONCE = 100;

export class More<T> {
  /** The button that adds some; to be put behind the list. */
  readonly element = h('div', { class: 'wv-more', hidden: true });
  private rest: readonly T[] = [];
  private done: () => void = () => {};

  constructor(
    private readonly list: HTMLElement,
    private readonly make: (one: T) => HTMLElement,
  ) {}

  /** Lists the first of `all` in place of what was listed; `done` is called after every addition. */
  show(all: readonly T[], done: () => void): void {
    this.list.replaceChildren();
    this.rest = all;
    this.done = done;
    this.add();
  }

  private add(): void {
    this.list.append(...this.rest.slice(0, AT_ONCE).map(this.make));
    this.rest = this.rest.slice(AT_ONCE);
    this.element.hidden = this.rest.length === 0;
    const label = `Show more (${formatCount(this.rest.length)} left)`;
    this.element.replaceChildren(button(label, () => this.add()));
    this.done();
  }
}
