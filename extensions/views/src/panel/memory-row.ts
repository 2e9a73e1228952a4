import type { Failure } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { h, setShown, setText } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { PanelContext, Row } from './context';
import { FactTable } from './facts';
import { FailureCode, FullTraceback } from './failure-code';
import { NewerModelRow } from './newer-model';
import { RemedyChoices } from './remedy-choices';

/** The kernel's status line while remedies are being tried (`workbench/memory/simulated_gpu/remedies.py`). */
const TRYING = 'trying what would help';

/** After memory ran out: what was requested and what there was, what was found to help. */
export function memoryRow(context: PanelContext): Row {
  const title = h('h3');
  const subtitle = h('p');
  const header = h('header', {}, icon('error'), title, subtitle);
  const code = new FailureCode(context);
  const facts = new FactTable();
  const beside = h('div', {}, h('p', { class: 'wb-h' }, 'Memory at the refusal'), facts.el);
  const columns = h('div', { class: 'wb-2col is-wide' }, code.el, beside);
  const apply = new Button('', { label: '', icon: 'resume', primary: true }, () => {
    if (choices.chosen >= 0) void context.run('apply_remedy', { index: choices.chosen });
  });
  const choices = new RemedyChoices(() => label());
  const label = (): void => apply.set({ label: `Resume with ${oneLine(choices.name, 40)}` });
  const resume = new Button(
    '',
    { label: 'Resume as it is', icon: 'resume' },
    () => void context.run('resume_from_failure', {}),
  );
  const open = new Button('', { label: 'Memory', icon: 'memory' }, () => {
    const capture = failure?.capture;
    if (capture && !context.open({ kind: 'memory', capture })) {
      context.fail('The memory of the step opens inside JupyterLab, or with wb.memory(exp).');
    }
  });
  const newer = new NewerModelRow(context, apply);
  const full = new FullTraceback();
  const buttons = [newer.button.el, apply.el, resume.el, open.el, full.button.el];
  const actions = h('div', { class: 'wb-actions' }, ...buttons);
  const el = h('div', { class: 'wb-row wb-msg is-bad', role: 'alert' }, header, columns);
  el.append(choices.el, newer.el, actions, full.el);
  let failure: Failure | null = null;
  return {
    el,
    update({ model, locked }) {
      const next = model.state.failure;
      for (const button of [apply, resume]) button.set({ disabled: locked || false });
      newer.update(model.state.newer_model, locked);
      if (!next) return;
      choices.update(next.remedies, model.state.message.includes(TRYING));
      setShown(apply.el, choices.chosen >= 0);
      label();
      if (next === failure || JSON.stringify(next) === JSON.stringify(failure)) return;
      failure = next;
      setText(title, oneLine(next.title, 200));
      setText(subtitle, oneLine(next.subtitle, 400));
      code.update(next, model.state.model);
      facts.update(next.memory);
      setShown(open.el, next.capture !== '');
      full.update(next);
    },
  };
}
