import type { Failure } from '@torch-workbench/records';
import { Button, copyText } from '../controls/button';
import { h, setShown, setText } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { PanelContext, Row } from './context';
import { FactTable } from './facts';
import { pythonLine } from './python-code';

/** B, after an exception in user code: their line first, then what is safe, then the next action. */
export function exceptionRow(context: PanelContext): Row {
  const title = h('h3');
  const subtitle = h('p');
  const header = h('header', {}, icon('error'), title, subtitle);
  const scope = h('b');
  const place = h('span');
  const goto = new Button('is-quiet', { label: 'Go to line', icon: 'goto' }, () => {
    const source = failure?.source;
    if (source && !context.open({ kind: 'goto', source })) {
      context.fail(`Jumping to a line works inside JupyterLab. It is ${place.textContent}.`);
    }
  });
  const lines = h('div', { class: 'lines', tabindex: 0, role: 'group', 'aria-label': 'Code' });
  const message = h('div', { class: 'err' });
  const loc = h('div', { class: 'loc' }, scope, place, h('span', { class: 'sp' }), goto.el);
  const block = h('div', { class: 'wb-tb' }, loc, lines, message);
  const values = new FactTable();
  const beside = h('div', {}, h('p', { class: 'wb-h' }, 'Values on this line'), values.el);
  const resume = new Button(
    '',
    { label: 'Resume from last good step', icon: 'resume', primary: true },
    () => void context.run('resume_from_failure', {}),
  );
  const traceback = h('pre', { class: 'wb-traceback', tabindex: 0 });
  const copy = new Button('is-quiet', { label: 'Copy', icon: 'copy' }, () => {
    void copyText(failure?.traceback ?? '').then((done) =>
      copy.set({ label: done ? 'Copied' : 'Copy it with the keyboard' }),
    );
  });
  const full = h('div', { class: 'wb-full' }, copy.el, traceback);
  setShown(full, false);
  const show = new Button('', { label: 'Show full traceback' }, () => {
    setShown(full, full.hidden);
    show.set({ label: full.hidden ? 'Show full traceback' : 'Hide full traceback' });
    show.el.setAttribute('aria-expanded', String(!full.hidden));
  });
  const note = h('span', { class: 'note' });
  const actions = h('div', { class: 'wb-actions' }, resume.el, show.el, note);
  const columns = h('div', { class: 'wb-2col' }, block, beside);
  const el = h('div', { class: 'wb-row wb-msg is-bad', role: 'alert' }, header, columns);
  el.append(actions, full);
  let failure: Failure | null = null;
  return {
    el,
    update({ model, locked }) {
      resume.set({ disabled: locked || false });
      const next = model.state.failure;
      if (!next || next === failure || JSON.stringify(next) === JSON.stringify(failure)) return;
      failure = next;
      setText(title, oneLine(next.title, 200));
      setText(subtitle, oneLine(next.subtitle, 400));
      setText(scope, oneLine(next.scope || model.state.model, 80));
      setText(place, next.source ? sourceLabel(next.source) : '');
      setShown(goto.el, next.source !== null);
      lines.replaceChildren(...next.code.map(codeLine));
      setShown(lines, next.code.length > 0);
      setText(message, next.message.slice(0, 4_000));
      values.update(next.values, true);
      setShown(beside, next.values.length > 0);
      columns.classList.toggle('is-single', next.values.length === 0);
      setText(traceback, next.traceback);
      setShown(show.el, next.traceback !== '');
      setText(note, frames(next));
    },
  };
}

function codeLine({ line, text, current }: Failure['code'][number]): HTMLElement {
  const content = oneLine(text, 1_000);
  const code = content.trimStart();
  const shown = h('span', {}, content.slice(0, content.length - code.length));
  const marked = current ? h('u', { class: 'at' }) : shown;
  marked.append(pythonLine(code));
  if (current) shown.append(marked);
  const classes = current ? 'ln is-at' : 'ln';
  return h('div', { class: classes }, h('i', {}, String(line)), shown);
}

function sourceLabel(source: NonNullable<Failure['source']>): string {
  if (source.cell !== null) return `cell [${source.cell}]`;
  return oneLine(source.filename.split('/').at(-1) ?? source.filename, 60);
}

function frames(failure: Failure): string {
  const { num_frames: all, num_user_frames: yours } = failure;
  if (all === 0) return '';
  return `${all} ${all === 1 ? 'frame' : 'frames'}, ${yours} of them yours`;
}
