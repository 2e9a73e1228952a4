import type { TranslationBundle } from '@jupyterlab/translation';
import type { ExperimentState } from '@torch-workbench/records';
import { Widget } from '@lumino/widgets';
import { count, oneLine, short } from '@torch-workbench/views';

/** Progress of one experiment, in the status bar: its name, step and speed, and a small bar. */
export class StatusItem extends Widget {
  constructor(
    private readonly trans: TranslationBundle,
    onClick: () => void,
  ) {
    super({ node: document.createElement('button') });
    this.addClass('jp-Workbench-status');
    this.node.addEventListener('click', onClick);
    this.ring.className = 'jp-Workbench-ring';
    this.ring.setAttribute('aria-hidden', 'true');
    this.bar.className = 'jp-Workbench-bar';
    this.bar.setAttribute('aria-hidden', 'true');
    this.bar.append(this.fill);
    this.node.append(this.ring, this.text, this.bar);
  }

  /** Shows `state`, and how many others train; only what changed touches the page. */
  showState(state: ExperimentState, others: readonly ExperimentState[] = []): void {
    const more = others.length > 0 ? this.trans.__(' and %1 more', count(others.length)) : '';
    const text = `${oneLine(state.name, 24)}: ${this.describe(state)}${more}`;
    const all = [state, ...others].map((one) => `${oneLine(one.name, 60)}: ${this.describe(one)}`);
    const title = [this.trans.__('Show the Workbench side panel'), ...all].join('\n');
    if (this.node.title !== title) {
      this.node.title = title;
    }
    if (this.text.textContent !== text) {
      this.text.textContent = text;
    }
    this.node.dataset.status = state.status;
    const known = state.total_steps > 0;
    this.bar.hidden = !known;
    if (known) {
      const share = Math.min(1, state.step / state.total_steps);
      this.fill.style.width = `${(100 * share).toFixed(1)}%`;
    }
  }

  private describe(state: ExperimentState): string {
    const status =
      state.status === 'training' ? this.trans.__('training') : this.trans.__('paused');
    const step =
      state.total_steps > 0
        ? `${count(state.step)}/${count(state.total_steps)}`
        : count(state.step);
    const rate = state.samples_per_s;
    return rate === null || state.status !== 'training'
      ? `${status} ${step}`
      : `${status} ${step}, ${this.trans.__('%1 samples/s', short(rate))}`;
  }

  private readonly ring = document.createElement('span');
  private readonly text = document.createElement('span');
  private readonly bar = document.createElement('span');
  private readonly fill = document.createElement('i');
}
