import type { ExperimentState, Status } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { clock } from '../format';
import type { PanelContext, Row } from './context';
import { epochsField } from './epochs-field';
import { learningRateField } from './learning-rate';
import { progress } from './progress';

/**
 * Row 1: Train, Pause, Step, Stop; epochs, learning rate; how far it is. `effectId` is the id of the
 * sentence on what a rate does under a schedule.
 */
export function runRow(context: PanelContext, effectId: string): Row {
  const epochs = epochsField(context);
  const rate = learningRateField(context);
  const bar = progress();
  let status: Status = 'idle';
  const train = new Button('is-train', { label: 'Train', icon: 'train' }, () => {
    const chosen = epochs.value();
    if (status === 'paused') void context.run('resume', {});
    else if (chosen !== null) void context.run('run', { epochs: chosen });
  });
  const pause = new Button('', { label: 'Pause', icon: 'pause' }, () => {
    void context.run('pause', {});
  });
  const step = new Button('', { label: 'Step', icon: 'step' }, () => {
    void context.run('step', { count: 1 });
  });
  const stop = new Button('', { label: 'Stop', icon: 'stop' }, () => {
    void context.run('stop', {});
  });
  const buttons = [train, pause, step, stop].map((button) => button.el);
  const toolbar = h('div', { class: 'wb-btns', role: 'toolbar', 'aria-label': 'Run' }, ...buttons);
  roving(toolbar, () => buttons);
  setStop(buttons, train.el);
  const el = h('div', { class: 'wb-row wb-run' }, toolbar, epochs.el, rate.el, bar.el);
  return {
    el,
    update({ model, locked }) {
      const { state } = model;
      status = state.status;
      train.set(trainState(state, locked));
      pause.set({ disabled: locked || (status === 'training' ? false : 'Nothing is training') });
      step.set({ disabled: locked || (status === 'training' ? 'Pause first, then step' : false) });
      const over = ['idle', 'finished', 'stopped'].includes(status);
      stop.set({ disabled: locked || (over ? 'Nothing is running' : false) });
      epochs.update(state.epochs, locked);
      rate.update(state.learning_rate, locked, state.schedule ? effectId : '');
      bar.update(state, locked !== '');
    },
  };
}

function trainState(state: ExperimentState, locked: string): Parameters<Button['set']>[0] {
  const { status } = state;
  if (locked) return { label: 'Train', icon: 'train', primary: false, disabled: locked };
  if (status === 'training') {
    const since =
      state.started_at === null ? '' : ` since ${clock(new Date(1000 * state.started_at))}`;
    const disabled = `Training${since}. Pause or Stop first.`;
    return { label: 'Training', icon: 'ring', primary: true, disabled };
  }
  const failed = status === 'exception' || status === 'nan';
  const label = status === 'paused' ? 'Resume' : 'Train';
  return { label, icon: 'train', primary: !failed, disabled: false };
}
