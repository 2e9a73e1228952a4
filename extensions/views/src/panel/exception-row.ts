import type { Failure } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { h, setShown, setText } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { PanelContext, Row } from './context';
import { FactTable } from './facts';
import { FailureCode, framesOf, FullTraceback } from './failure-code';
import { NewerModelRow } from './newer-model';

/** B, after an exception in user code: their line first, then what is safe, then the next action. */
export function exceptionRow(context: PanelContext): Row {
  const title = h('h3');
  const subtitle = h('p');
  const header = h('header', {}, icon('error'), title, subtitle);
  const code = new FailureCode(context);
  const values = new FactTable();
  const beside = h('div', {}, h('p', { class: 'wb-h' }, 'Values on this line'), values.el);
  const resume = new Button(
    '',
    { label: 'Resume from last good step', icon: 'resume', primary: true },
    () => void context.run('resume_from_failure', {}),
  );
  const newer = new NewerModelRow(context, resume);
  const full = new FullTraceback();
  const note = h('span', { class: 'note' });
  const buttons = [newer.button.el, resume.el, full.button.el];
  const actions = h('div', { class: 'wb-actions' }, ...buttons, note);
  const columns = h('div', { class: 'wb-2col' }, code.el, beside);
  const el = h('div', { class: 'wb-row wb-msg is-bad', role: 'alert' }, header, columns);
  el.append(newer.el, actions, full.el);
  let failure: Failure | null = null;
  return {
    el,
    update({ model, locked }) {
      resume.set({ disabled: locked || false });
      newer.update(model.state.newer_model, locked);
      const next = model.state.failure;
      if (!next || next === failure || JSON.stringify(next) === JSON.stringify(failure)) return;
      failure = next;
      setText(title, oneLine(next.title, 200));
      setText(subtitle, oneLine(next.subtitle, 400));
      code.update(next, model.state.model);
      values.update(next.values, true);
      setShown(beside, next.values.length > 0);
      columns.classList.toggle('is-single', next.values.length === 0);
      full.update(next);
      setText(note, framesOf(next));
    },
  };
}
