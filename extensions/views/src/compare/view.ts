/** A comparison of modes: a section a model, and how it was measured. */
import { h } from '../dom';
import { follow, newSize } from '../graph/follow';
import { shorten } from '../graph/format';
import type { Dispose, Store } from '../store';
import type { CompareViewState } from './mount';
import { modelsOf, withNaN } from './report';
import { ModelSection } from './section';
import { STYLE } from './style';
import { footing, heading } from './words';

const UNSEEN = 960;

export class CompareView {
  readonly element = h('div', { class: 'wv-view wv-compare' });
  private sections: readonly ModelSection[] = [];
  private state: CompareViewState | null = null;
  private end: Dispose = () => {};
  private readonly main = h('div', { class: 'wv-sections' });
  private readonly spoken = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });

  constructor(private readonly store: Store<CompareViewState, never>) {
    this.element.append(h('style', {}, STYLE), this.main, this.spoken);
  }

  start(): void {
    this.end = follow(this.element, this.main, this.store, {
      // JupyterLab binds Enter and single letters in command mode; none of them may leave the view.
      key: (event) => {
        if (event.key === 'Enter' || event.key === ' ') event.stopPropagation();
      },
      theme: () => {},
      update: () => this.update(),
      resize: () => this.resize(),
    });
    this.update();
  }

  dispose(): void {
    this.end();
    this.element.remove();
  }

  private update(): void {
    const state = this.store.get();
    if (state === this.state) return;
    this.state = state;
    const { error } = state;
    const record = state.record && withNaN(state.record);
    this.sections = [];
    if (error !== null) {
      const title = h('b', {}, 'The comparison could not be shown');
      const box = h('div', { class: 'wv-error', role: 'alert' }, title, shorten(error, 2000));
      return this.main.replaceChildren(box);
    }
    if (!record) return this.main.replaceChildren(h('p', {}, 'No comparison yet.'));
    const models = modelsOf(record);
    const say = (text: string): void => void (this.spoken.textContent = text);
    this.sections = models.map((model) => new ModelSection(record, model, models.length > 1, say));
    const title = h('h2', {}, shorten(heading(record), 160));
    if (record.cancelled) title.append(h('span', { class: 'wv-pill' }, 'cancelled'));
    const foot = h('footer', {}, ...footing(record).map((line) => h('p', {}, line)));
    this.main.replaceChildren(title);
    if (record.rounds === 0)
      this.main.append(
        h('p', { class: 'wv-none' }, 'No round was completed, so there is no speed to compare.'),
      );
    this.main.append(...this.sections.map(({ element }) => element), foot);
    this.resize();
  }

  private resize(): void {
    newSize(this.element, UNSEEN, UNSEEN);
    const width = this.main.clientWidth || UNSEEN;
    for (const section of this.sections) section.resize(width);
  }
}
