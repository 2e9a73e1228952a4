/** The toolbar: what to group by, what to look for, which way round. */
import { button, choices, h, press, type Choices } from '../graph/dom';
import type { Slots } from '../graph/mount';
import { BY, type By } from './naming';
import { GROUPINGS } from './words';

export interface ToolbarEvents {
  group: (by: By) => void;
  filter: (query: string) => void;
  swap: () => void;
  table: () => void;
  details: () => void;
}

const DELAY_MS = 120;

export class Toolbar {
  readonly element = h('div', { class: 'wv-bar', role: 'toolbar', 'aria-label': 'Memory diff' });
  readonly search = h('input', {
    type: 'search',
    placeholder: 'Name',
    'aria-label': 'Filter what differs by name',
    maxlength: 200,
  });
  private readonly by: Choices<By>;
  private readonly table: HTMLButtonElement;
  private readonly details: HTMLButtonElement;
  private timer = 0;

  constructor(
    private readonly events: ToolbarEvents,
    { lead = [], tail = [] }: Slots,
  ) {
    const values = BY.map((value) => ({ value, text: GROUPINGS[value].text }));
    this.by = choices<By>('Grouped by', values, 'category', (by) => events.group(by));
    BY.forEach((_, at) =>
      this.by.element.children[at]?.append(h('kbd', { 'aria-hidden': 'true' }, String(at + 1))),
    );
    this.table = button('Table', events.table, { title: 'The timelines as numbers' }, 'T');
    this.details = button('Details', events.details, {}, 'D');
    const key = h('kbd', { 'aria-hidden': 'true' }, '/');
    this.element.append(
      ...lead,
      h('span', { class: 'wv-label' }, 'By'),
      this.by.element,
      h('span', { class: 'wv-space' }),
      h('label', { class: 'wv-find' }, this.search, key),
      button('Swap A and B', events.swap, { title: 'Read it the other way round' }, 'X'),
      this.table,
      this.details,
      ...tail,
    );
    this.search.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.filter(), DELAY_MS);
    });
  }

  show(by: By, table: boolean, details: boolean): void {
    this.by.set(by);
    press(this.table, table);
    press(this.details, details);
  }

  clear(): void {
    this.search.value = '';
    this.filter();
  }

  private filter(): void {
    clearTimeout(this.timer);
    this.events.filter(this.search.value);
  }
}
