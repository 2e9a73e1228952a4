import type { RunSummary } from '@torch-workbench/records';
import { look } from '../controls/chip';
import { h, setShown, setText } from '../dom';
import { count } from '../format';
import { icon } from '../icons';

/** A list that is longer than this cannot be seen at a glance. */
const AT_A_GLANCE = 8;

/** A field above the runs that leaves those that have every word of it; Escape empties it. */
export class RunFilter {
  readonly el: HTMLElement;
  readonly input = h('input', {
    type: 'search',
    placeholder: 'Filter by name, state, model',
    'aria-label': 'Filter the runs by name, state, model or modes',
    autocomplete: 'off',
    spellcheck: 'false',
    maxlength: 200,
  });
  private readonly found = h('span', { class: 'found', role: 'status' });

  constructor(private readonly onChange: () => void) {
    const field = h('label', { class: 'field' }, icon('search', 12), this.input);
    this.el = h('div', { class: 'wb-runs-filter' }, field, this.found);
    this.input.addEventListener('input', onChange);
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || this.query === '') return;
      event.preventDefault();
      event.stopPropagation();
      this.clear();
    });
  }

  get query(): string {
    return this.input.value.trim();
  }

  clear(): void {
    this.input.value = '';
    this.input.focus();
    this.onChange();
  }

  /** Those of the runs that match; a field that is in use stays, however short the list becomes. */
  apply(runs: readonly RunSummary[]): readonly RunSummary[] {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = runs.filter((run) => {
      const text = textOf(run);
      return words.every((word) => text.includes(word));
    });
    const isUsed = words.length > 0 || this.el.contains(document.activeElement);
    setShown(this.el, isUsed || runs.length > AT_A_GLANCE);
    const found = `${count(matching.length)} of ${count(runs.length)}`;
    setText(this.found, words.length > 0 ? found : '');
    return matching;
  }
}

function textOf({ name, status, model, modes }: RunSummary): string {
  return [name, look(status).word, status, model, modes].join('\n').toLowerCase();
}
