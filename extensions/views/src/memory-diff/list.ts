/** What differs, the largest change first: a table whose bars go left and right of nothing. */
import { button, h } from '../graph/dom';
import { plural } from '../graph/format';
import type { Pair } from './pair';
import { rowOf, scaleOf, totalOf } from './row';
import { GROUPINGS } from './words';

/** Rows that are listed; a filter finds the rest. */
const MOST = 300;

export interface ListEvents {
  select: (what: string | null) => void;
  /** Lists what did not change too, or no more. */
  same: (shown: boolean) => void;
}

export class ChangeList {
  readonly element = h('div', { class: 'wv-changes' });
  private readonly body = h('tbody', {});
  private readonly head = h('th', { scope: 'col' });
  private readonly foot = h('tfoot', {});
  private readonly table: HTMLElement;
  private readonly under = h('div', { class: 'wv-under' });

  constructor(private readonly events: ListEvents) {
    const titles = ['A', 'B', 'B − A', '', 'of A', 'Blocks'];
    const heads = titles.map((text) =>
      text ? h('th', { scope: 'col' }, text) : h('th', { scope: 'col', 'aria-label': 'Bar' }),
    );
    const head = h('thead', {}, h('tr', {}, this.head, ...heads));
    const said = 'Bytes at both peaks and how they differ';
    this.table = h('table', { class: 'wv-diffs', 'aria-label': said }, head, this.body, this.foot);
    this.element.append(this.table, this.under);
    this.body.addEventListener('keydown', (event) => this.key(event));
    this.body.addEventListener('click', ({ target }) => {
      const row = target instanceof Element ? target.closest('tr') : null;
      if (row) this.choose(row);
    });
  }

  /** Lists a pair's changes as it groups and filters them. */
  show(pair: Pair): void {
    const { rows, same } = pair.rows();
    const focused = this.body.contains(document.activeElement);
    this.head.textContent = GROUPINGS[pair.by].text;
    const scale = scaleOf(pair.changes());
    const listed = rows.slice(0, MOST);
    this.body.replaceChildren(...listed.map((row) => rowOf(pair, row, scale)));
    this.foot.replaceChildren(totalOf(pair, rows));
    this.table.hidden = rows.length === 0 && pair.isSame;
    this.under.replaceChildren(...this.beneath(pair, rows.length, same));
    if (focused) this.focus();
  }

  /** Marks the chosen row, without listing anew. */
  mark(selected: string | null): void {
    for (const row of this.rows)
      row.setAttribute('aria-selected', String(row.dataset['what'] === selected));
  }

  /** The focus goes to the chosen row, else to the first. */
  focus(): void {
    const chosen = this.rows.find((row) => row.getAttribute('aria-selected') === 'true');
    (chosen ?? this.rows[0])?.focus();
  }

  private get rows(): HTMLElement[] {
    return [...this.body.children].filter((row) => row instanceof HTMLElement);
  }

  private choose(row: HTMLElement): void {
    const { what = '' } = row.dataset;
    this.events.select(row.getAttribute('aria-selected') === 'true' ? null : what);
  }

  private key(event: KeyboardEvent): void {
    const row = event.target instanceof HTMLElement ? event.target.closest('tr') : null;
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const { rows } = this;
    const at = rows.indexOf(row);
    const to: Record<string, HTMLElement | undefined> = {
      ArrowDown: rows[at + 1],
      ArrowUp: rows[at - 1],
      Home: rows[0],
      End: rows.at(-1),
    };
    if (event.key === 'Enter' || event.key === ' ') this.choose(row);
    else if (event.key in to) to[event.key]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private beneath(pair: Pair, count: number, same: number): Node[] {
    const { one, many } = GROUPINGS[pair.by];
    const found: Node[] = [];
    if (count === 0) found.push(nothing(pair));
    if (count > MOST) {
      const rest = plural(count - MOST, `smaller ${one}`, `smaller ${many}`);
      found.push(h('p', {}, `${rest} not listed; filter to find them.`));
    }
    if (same > 0) {
      const text = pair.showSame
        ? 'Hide what did not change'
        : `Show ${plural(same, one, many)} that did not change`;
      found.push(button(text, () => this.events.same(!pair.showSame), { class: 'wv-link' }));
    }
    return found;
  }
}

function nothing({ by, query, showSame, isSame }: Pair): HTMLElement {
  const { one } = GROUPINGS[by];
  if (query.trim())
    return h('p', {}, `No ${one} of that name ${showSame ? 'is there' : 'differs'}.`);
  if (!isSame) return h('p', {}, `Nothing differs by ${one}.`);
  return h('p', { class: 'wv-equal' }, 'Nothing differs, by category, module, line or stack.');
}
