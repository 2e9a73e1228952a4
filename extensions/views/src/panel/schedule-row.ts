import type { ExperimentState, ScheduleState } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { highest, isComplete, ScheduleLine } from '../curves';
import { h, setAttr, setShown, setText } from '../dom';
import { learningRate, oneLine } from '../format';
import type { PanelContext, Row } from './context';

/**
 * Below row 1, where there is a learning-rate schedule: its name, what it counts, the rates to come,
 * what a rate that is typed does, and a way to end it. `effectId` is the id of that sentence.
 */
export function scheduleRow(context: PanelContext, effectId: string): Row {
  const name = h('b');
  const every = h('span');
  const line = new ScheduleLine();
  const top = h('span');
  const last = h('span');
  const figures = h('span', { class: 'wb-schedule-figures' }, top, last);
  const why = h('span', { class: 'wb-schedule-why' });
  const effect = h('span', { class: 'wb-schedule-effect', id: effectId });
  const replace = new Button('is-small', { label: 'Replace by a constant' }, () => {
    void context.run('remove_scheduler', {});
  });
  const title = h('span', { class: 'wb-schedule-name' }, name, every);
  const el = h(
    'div',
    { class: 'wb-row wb-schedule', role: 'group', 'aria-label': 'Learning-rate schedule' },
    title,
    h('span', { class: 'wb-schedule-curve' }, line.svg, figures, why),
    effect,
    replace.el,
  );
  return {
    el,
    update({ model: { state }, locked }) {
      const { schedule, learning_rate: rate } = state;
      setShown(el, schedule !== null);
      if (!schedule) return;
      setText(name, oneLine(schedule.name, 40));
      setAttr(name, 'title', oneLine(schedule.name, 400));
      setText(every, `, every ${schedule.every}`);
      line.draw(schedule, position(state, schedule), rate);
      const drawn = schedule.low.length > 0;
      setShown(figures, drawn);
      if (drawn) {
        const soFar = schedule.is_whole ? '' : ' so far';
        setText(top, `highest${soFar} ${learningRate(highest(schedule).rate)}`);
        setText(last, ending(schedule));
      }
      const reason = schedule.why || (drawn || schedule.is_whole ? '' : 'computing');
      setShown(why, reason !== '');
      setText(why, oneLine(reason, 120));
      setAttr(why, 'title', oneLine(reason, 1_000) || null);
      setText(effect, schedule.effect);
      const kept = `Keep the learning rate at ${learningRate(rate)} from the next step on`;
      replace.set({ disabled: locked || false, title: kept });
    },
  };
}

/** What is seen of the end of the curve. */
function ending(schedule: ScheduleState): string {
  if (isComplete(schedule)) return `last ${learningRate(schedule.low.at(-1) ?? 0)}`;
  return schedule.is_whole ? '' : 'computing';
}

/** Where the run is, in what the schedule counts. */
function position(state: ExperimentState, schedule: ScheduleState): number {
  if (schedule.every === 'step') return state.step;
  return state.steps_per_epoch > 0
    ? state.step / state.steps_per_epoch
    : Math.max(0, state.epoch - 1);
}
