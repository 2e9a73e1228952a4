import type { Failure } from '@torch-workbench/records';
import { h, setShown, setText, uniqueId } from '../dom';
import { bytes, oneLine } from '../format';

type Remedy = Failure['remedies'][number];

/** What was tried on a step that did not fit: what fits can be chosen, the cheapest first. */
export class RemedyChoices {
  readonly el: HTMLElement;
  private readonly list = h('div', { role: 'radiogroup', 'aria-label': 'What would help' });
  private readonly none = h('p', { class: 'wb-quiet' });
  private readonly group = uniqueId('remedy');
  private shown = '';
  private remedies: readonly Remedy[] = [];
  private index = -1;

  /** `changed` is called when another one is chosen. */
  constructor(private readonly changed: () => void) {
    const head = h('p', { class: 'wb-h' }, 'What would help, as it was tried');
    this.el = h('div', { class: 'wb-remedies' }, head, this.list, this.none);
  }

  /** Number of the chosen remedy, -1 for none. */
  get chosen(): number {
    return this.index;
  }

  get name(): string {
    return this.remedies[this.index]?.name ?? '';
  }

  update(remedies: readonly Remedy[], trying: boolean): void {
    const fit = remedies.some(({ fits }) => fits);
    const none = remedies.length > 0 ? 'Nothing that was tried lets the step fit.' : UNTRIED;
    setText(
      this.none,
      trying ? 'Being tried now, with the failed step. It may take seconds.' : none,
    );
    setShown(this.none, !fit);
    const key = JSON.stringify(remedies);
    if (key === this.shown) return;
    this.shown = key;
    this.remedies = remedies;
    this.index = remedies.findIndex(({ fits }) => fits);
    this.list.replaceChildren(...remedies.map((remedy, row) => this.choice(remedy, row)));
  }

  private choice(remedy: Remedy, row: number): HTMLElement {
    const { name, code, peak_bytes, fits, cost, basis } = remedy;
    const box = h('input', { type: 'radio', name: this.group, value: String(row) });
    box.disabled = !fits;
    box.checked = row === this.index;
    box.addEventListener('change', () => {
      this.index = row;
      this.changed();
    });
    const outcome = fits ? `fits, ${bytes(peak_bytes)} at the peak` : 'does not fit';
    const first = h('span', { class: 'name' }, h('b', {}, oneLine(name, 60)), ` ${outcome}`);
    const text = h('span', {}, first, h('small', {}, oneLine(fits ? cost : basis, 300)));
    const title = `${code}\n${oneLine(basis, 300)}`;
    return h('label', { class: fits ? 'wb-remedy' : 'wb-remedy is-unfit', title }, box, text);
  }
}

const UNTRIED = 'Nothing was tried: the search was ended, or the step was not recorded.';
