import type { ExperimentState } from '@torch-workbench/records';
import { Chip } from '../controls/chip';
import { h, setAttr, setClass, setShown, setText } from '../dom';
import { count, duration, short } from '../format';

/** More epoch ticks than this in a bar 224 px wide are noise. */
const MOST_TICKS = 24;

export interface Progress {
  readonly el: HTMLElement;
  update(state: ExperimentState, halted: boolean): void;
}

/** The bar with one notch per epoch, and the three figures under it. */
export function progress(): Progress {
  const filled = h('i');
  const bar = h('div', { class: 'wb-bar', role: 'progressbar', 'aria-label': 'Progress' }, filled);
  const step = h('b');
  const total = h('span');
  const rate = h('b');
  const left = h('b');
  const chip = new Chip('wb-state');
  const speed = h('span', { class: 'speed' }, rate, ' samples/s');
  const remaining = h('span', {}, left, ' left');
  const stats = h('div', { class: 'wb-stats' }, h('span', {}, step, total), speed, remaining);
  stats.append(chip.el);
  let notches = -1;
  return {
    el: h('div', { class: 'wb-progress' }, bar, stats),
    update(state, lost) {
      const { step: done, total_steps: all, status } = state;
      const live = status === 'training' && !lost;
      if (epochsIn(state) !== notches) {
        notches = epochsIn(state);
        bar.replaceChildren(filled, ...epochNotches(notches));
      }
      filled.style.width = `${all > 0 ? Math.min(100, (100 * done) / all).toFixed(2) : 0}%`;
      setClass(bar, 'is-halted', ['exception', 'nan', 'stopped'].includes(status) || lost);
      setAttr(bar, 'aria-valuemin', 0);
      setAttr(bar, 'aria-valuemax', all || null);
      setAttr(bar, 'aria-valuenow', all > 0 ? Math.min(done, all) : null);
      setAttr(bar, 'aria-valuetext', spoken(state));
      setText(step, count(done));
      setText(total, all > 0 ? ` / ${count(all)}` : ' steps');
      setShown(speed, live && state.samples_per_s !== null);
      if (state.samples_per_s !== null) setText(rate, short(state.samples_per_s));
      setShown(remaining, live && state.seconds_left !== null);
      if (state.seconds_left !== null) setText(left, rounded(state.seconds_left));
      setShown(chip.el, !live);
      chip.update(lost && status === 'training' ? 'disconnected' : status);
    },
  };
}

/** Epochs from the very first step to the end of the run: a second run goes on counting. */
function epochsIn(state: ExperimentState): number {
  const known = state.steps_per_epoch > 0 && state.total_steps > 0;
  return known ? Math.ceil(state.total_steps / state.steps_per_epoch) : state.epochs;
}

function epochNotches(epochs: number): HTMLElement[] {
  if (epochs < 2 || epochs > MOST_TICKS) return [];
  return Array.from({ length: epochs - 1 }, (_, i) => {
    const notch = h('b');
    notch.style.left = `${((100 * (i + 1)) / epochs).toFixed(2)}%`;
    return notch;
  });
}

/** Seconds say nothing about a run of ten minutes or more, and they make the row too long. */
function rounded(seconds: number): string {
  return duration(seconds < 600 ? seconds : 60 * Math.round(seconds / 60));
}

function spoken(state: ExperimentState): string {
  const of = state.total_steps > 0 ? ` of ${count(state.total_steps)}` : '';
  const epoch = state.epoch > 0 ? `, epoch ${count(state.epoch)} of ${count(epochsIn(state))}` : '';
  return `step ${count(state.step)}${of}${epoch}`;
}
