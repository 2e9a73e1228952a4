import { Chip } from '../controls/chip';
import { roving, setStop } from '../controls/roving';
import { Sparkline } from '../curves';
import { drawOn, h, setAttr, setClass, setText } from '../dom';
import { count, oneLine, percent } from '../format';
import type { Command, ExperimentModel, KernelModel } from '../kernel';
import type { Dispose, Store } from '../store';

export interface ExperimentsOptions {
  /** Id of the experiment that the other sections show. */
  readonly current: () => string | null;
  readonly onSelect: (experiment: string) => void;
}

/** The experiments of a kernel: name, how far, the loss so far, the state. */
export function mountExperiments(
  el: HTMLElement,
  store: Store<KernelModel, Command>,
  options: ExperimentsOptions,
): Dispose {
  const list = h('div', { class: 'wb wb-list', role: 'listbox', 'aria-label': 'Experiments' });
  el.append(list);
  const rows = new Map<string, ExperimentRow>();
  let shown: string | null = null;
  const buttons = (): HTMLElement[] => [...rows.values()].map((row) => row.el);
  roving(list, buttons);
  const draw = (): void => {
    const { experiments } = store.get();
    for (const [id, row] of rows) {
      if (experiments.has(id)) continue;
      row.el.remove();
      rows.delete(id);
    }
    const current = options.current();
    const chosen = current !== shown;
    shown = current;
    for (const [id, model] of experiments) {
      let row = rows.get(id);
      if (!row) {
        row = new ExperimentRow(() => {
          options.onSelect(id);
          draw();
        });
        rows.set(id, row);
        list.append(row.el);
      }
      row.update(model, id === current);
    }
    // The list scrolls to what was chosen elsewhere: by another notebook, say.
    const row = chosen && current !== null ? rows.get(current) : undefined;
    row?.el.scrollIntoView?.({ block: 'nearest' });
    const stop = (current !== null && rows.get(current)?.el) || buttons()[0];
    if (stop && !list.contains(document.activeElement)) setStop(buttons(), stop);
  };
  const end = drawOn(store, draw);
  return () => {
    end();
    list.remove();
  };
}

class ExperimentRow {
  readonly el: HTMLButtonElement;
  private readonly name = h('code');
  private readonly note = h('small');
  private readonly spark = new Sparkline();
  private readonly chip = new Chip('wb-chip');

  constructor(onSelect: () => void) {
    const words = h('span', { class: 'words' }, h('span', { class: 'nm' }, this.name), this.note);
    const attrs = { type: 'button', class: 'wb-exp', role: 'option' };
    this.el = h('button', attrs, words, this.spark.svg, this.chip.el);
    this.el.addEventListener('click', onSelect);
  }

  update({ state, curves }: ExperimentModel, current: boolean): void {
    setText(this.name, oneLine(state.name, 60));
    setAttr(this.el, 'title', `${oneLine(state.name, 200)}: ${oneLine(state.model, 200)}`);
    setText(this.note, progress(state));
    this.spark.draw(curves.get('train/loss'), state.total_steps, state.status === 'training');
    this.chip.update(state.status);
    setClass(this.el, 'is-current', current);
    setAttr(this.el, 'aria-selected', current);
  }
}

function progress({ status, best_accuracy, step, total_steps }: ExperimentModel['state']): string {
  if (status === 'finished' && best_accuracy !== null) return `best ${percent(best_accuracy)}`;
  return total_steps > 0 ? `step ${count(step)} / ${count(total_steps)}` : `step ${count(step)}`;
}
