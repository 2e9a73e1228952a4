import { iconButton } from '../controls/button';
import { Chip } from '../controls/chip';
import { roving, setStop } from '../controls/roving';
import { Sparkline } from '../curves';
import { drawOn, h, setAttr, setClass, setShown, setText } from '../dom';
import { messageOf } from '../errors';
import { count, oneLine, percent } from '../format';
import type { Command, ExperimentModel, KernelModel } from '../kernel';
import type { Dispose, Store } from '../store';

export interface ExperimentsOptions {
  /** Id of the experiment that the other sections show. */
  readonly current: () => string | null;
  readonly onSelect: (experiment: string) => void;
  /** Receives one sentence on why a command to an experiment was not carried out. */
  readonly onFailure?: (reason: string) => void;
}

/** The experiments of a kernel, the newest first: name, how far, the loss so far, the state. */
export function mountExperiments(
  el: HTMLElement,
  store: Store<KernelModel, Command>,
  options: ExperimentsOptions,
): Dispose {
  const list = h('div', { class: 'wb wb-list', role: 'listbox', 'aria-label': 'Experiments' });
  el.append(list);
  const rows = new Map<string, ExperimentRow>();
  let shown: string | null = null;
  const buttons = (): HTMLElement[] => [...rows.values()].map((row) => row.choice).reverse();
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
        const send = (name: 'pause' | 'resume' | 'stop'): void => {
          store.send({ name, experiment: id, args: {} }).catch((error: unknown) => {
            options.onFailure?.(messageOf(error));
          });
        };
        const select = (): void => {
          options.onSelect(id);
          draw();
        };
        row = new ExperimentRow(select, send);
        rows.set(id, row);
        list.prepend(row.el); // the kernel sends the oldest first
      }
      row.update(model, id === current);
    }
    // The list scrolls to what was chosen elsewhere: by another notebook, say.
    const row = chosen && current !== null ? rows.get(current) : undefined;
    row?.el.scrollIntoView?.({ block: 'nearest' });
    const stop = (current !== null && rows.get(current)?.choice) || buttons()[0];
    if (stop && !list.contains(document.activeElement)) setStop(buttons(), stop);
  };
  const end = drawOn(store, draw);
  return () => {
    end();
    list.remove();
  };
}

/** An experiment to choose, and beside it the commands for it, whether it is chosen or not. */
class ExperimentRow {
  readonly el: HTMLElement;
  readonly choice: HTMLButtonElement;
  private readonly name = h('code');
  private readonly note = h('small');
  private readonly spark = new Sparkline();
  private readonly chip = new Chip('wb-chip');
  private readonly halt: HTMLButtonElement;
  private readonly goOn: HTMLButtonElement;
  private readonly stop: HTMLButtonElement;

  constructor(onSelect: () => void, send: (name: 'pause' | 'resume' | 'stop') => void) {
    const words = h('span', { class: 'words' }, h('span', { class: 'nm' }, this.name), this.note);
    const attrs = { type: 'button', class: 'wb-exp', role: 'option' };
    this.choice = h('button', attrs, words, this.spark.svg, this.chip.el);
    this.choice.addEventListener('click', onSelect);
    this.halt = iconButton('pause', '', () => send('pause'));
    this.goOn = iconButton('resume', '', () => send('resume'));
    this.stop = iconButton('stop', '', () => send('stop'));
    const actions = h('span', { class: 'wb-acts' }, this.halt, this.goOn, this.stop);
    this.el = h('div', { class: 'wb-exp-row', role: 'none' }, this.choice, actions);
  }

  update({ state, curves }: ExperimentModel, current: boolean): void {
    const name = oneLine(state.name, 60);
    setText(this.name, name);
    const title = `${oneLine(state.name, 200)}: ${oneLine(state.model, 200)}`;
    setAttr(this.choice, 'title', `${title}\n${oneLine(state.message, 300)}`);
    const because = whyPaused(state);
    setText(this.note, because ? `step ${count(state.step)},${because}` : progress(state));
    setClass(this.el, 'has-reason', because !== '');
    this.spark.draw(curves.get('train/loss'), state.total_steps, state.status === 'training');
    this.chip.update(state.status);
    setClass(this.choice, 'is-current', current);
    setAttr(this.choice, 'aria-selected', current);
    const { status } = state;
    const canGoOn = status === 'paused' || status === 'exception' || status === 'nan';
    for (const [button, verb, shown] of [
      [this.halt, 'Pause', status === 'training'],
      [this.goOn, 'Resume', canGoOn],
      [this.stop, 'Stop', status === 'training' || canGoOn],
    ] as const) {
      setShown(button, shown);
      setAttr(button, 'aria-label', `${verb} ${name}`);
      setAttr(button, 'title', `${verb} ${name}`);
    }
    setClass(this.el, 'has-actions', status === 'training' || canGoOn);
  }
}

/** Why it was paused, where it was not a person who did; else an empty text. */
function whyPaused({ status, message }: ExperimentModel['state']): string {
  const at = status === 'paused' ? message.indexOf(' because ') : -1;
  return at < 0 ? '' : oneLine(message.slice(at), 80);
}

function progress({ status, best_accuracy, step, total_steps }: ExperimentModel['state']): string {
  if (status === 'finished' && best_accuracy !== null) return `best ${percent(best_accuracy)}`;
  return total_steps > 0 ? `step ${count(step)} / ${count(total_steps)}` : `step ${count(step)}`;
}
