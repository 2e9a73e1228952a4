import type { Failure, ModeState } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { lossChart } from '../curves';
import { h, setShown, setText } from '../dom';
import { learningRate, oneLine } from '../format';
import { icon } from '../icons';
import type { PanelContext, Row } from './context';
import { FactTable } from './facts';
import { lossData } from './metric-data';
import { NewerModelRow } from './newer-model';

/** C, after the loss became NaN: the evidence, and the remedies as choices. */
export function nanRow(context: PanelContext, lossName: string): Row {
  const title = h('h3');
  const subtitle = h('p');
  const header = h('header', {}, icon('warning'), title, subtitle);
  const chart = lossChart(lossName, 160);
  const facts = new FactTable();
  const measured = h('div', {}, h('p', { class: 'wb-h' }, 'Measured'), facts.el);
  const columns = h('div', { class: 'wb-2col is-wide' }, chart.el, measured);
  const precision = choice();
  const slower = choice();
  let remedies: { modes?: string; learning_rate?: number } = {};
  const resume = new Button(
    '',
    { label: 'Resume from last good step', icon: 'resume', primary: true },
    () => {
      const args: typeof remedies = {};
      if (precision.box.checked && !precision.el.hidden && remedies.modes !== undefined) {
        args.modes = remedies.modes;
      }
      if (slower.box.checked && remedies.learning_rate !== undefined) {
        args.learning_rate = remedies.learning_rate;
      }
      void context.run('resume_from_failure', args);
    },
  );
  const newer = new NewerModelRow(context, resume);
  const buttons = [newer.button.el, resume.el, precision.el, slower.el];
  const actions = h('div', { class: 'wb-actions' }, ...buttons);
  const el = h('div', { class: 'wb-row wb-msg is-warn', role: 'alert' }, header, columns);
  el.append(newer.el, actions);
  let shown: Failure | null = null;
  return {
    el,
    update({ model, locked }) {
      const { failure, modes, learning_rate: rate } = model.state;
      resume.set({ disabled: locked || false });
      newer.update(model.state.newer_model, locked);
      chart.update(lossData(model));
      remedies = {};
      const safer = saferModes(modes);
      setShown(precision.el, safer !== null);
      if (safer) {
        remedies.modes = safer.modes;
        setText(precision.text, `with ${safer.value}`);
      }
      setShown(slower.el, rate !== null && rate > 0);
      if (rate !== null && rate > 0) {
        remedies.learning_rate = lower(rate);
        setText(slower.text, `with learning rate ${learningRate(remedies.learning_rate)}`);
      }
      if (!failure || failure === shown) return;
      // Lower precision overflows first: where it was on, leaving it is the likeliest remedy.
      if (shown?.step !== failure.step) precision.box.checked = true;
      shown = failure;
      setText(title, oneLine(failure.title, 200));
      setText(subtitle, oneLine(failure.subtitle, 400));
      facts.update(failure.values);
    },
    dispose: () => chart.dispose(),
  };
}

/** Half of a rate, or a tenth of 1 where it is above 1: halving 1e30 would take a hundred presses. */
function lower(rate: number): number {
  return rate > 1 ? 0.1 : Number((rate / 2).toPrecision(2));
}

function choice(): { el: HTMLElement; box: HTMLInputElement; text: HTMLElement } {
  const box = h('input', { type: 'checkbox' });
  const text = h('span');
  return { el: h('label', { class: 'wb-check' }, box, text), box, text };
}

/** The modes with a wider precision than the one that overflowed, as a mode string. */
export function saferModes(modes: readonly ModeState[]): { value: string; modes: string } | null {
  const precision = modes.find((mode) => mode.name === 'precision');
  if (!precision) return null;
  const wanted = precision.value === 'fp16' ? ['bf16', 'fp32'] : ['fp32'];
  const value = wanted.find((one) =>
    precision.choices.some(
      (it) => it.value === one && it.available && it.value !== precision.value,
    ),
  );
  if (value === undefined) return null;
  const tokens = modes.map((mode) => {
    const next = mode === precision ? value : mode.value;
    return next === mode.default ? null : `${mode.name}:${next}`;
  });
  return { value, modes: tokens.filter((token) => token !== null).join('+') };
}
