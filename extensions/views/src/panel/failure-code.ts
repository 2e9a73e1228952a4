import type { Failure } from '@torch-workbench/records';
import { Button, copyText } from '../controls/button';
import { h, setShown, setText } from '../dom';
import { oneLine } from '../format';
import type { PanelContext } from './context';
import { pythonLine } from './python-code';

/** Where a run failed: the user's line with those around it, and what was raised. */
export class FailureCode {
  readonly el: HTMLElement;
  private readonly scope = h('b');
  private readonly place = h('span');
  private readonly lines = h('div', {
    class: 'lines',
    tabindex: 0,
    role: 'group',
    'aria-label': 'Code',
  });
  private readonly message = h('div', { class: 'err' });
  private readonly goto: Button;
  private failure: Failure | null = null;

  constructor(context: PanelContext) {
    this.goto = new Button('is-quiet', { label: 'Go to line', icon: 'goto' }, () => {
      const source = this.failure?.source;
      if (source && !context.open({ kind: 'goto', source })) {
        context.fail(`Jumping to a line works inside JupyterLab. It is ${this.place.textContent}.`);
      }
    });
    const space = h('span', { class: 'sp' });
    const loc = h('div', { class: 'loc' }, this.scope, this.place, space, this.goto.el);
    this.el = h('div', { class: 'wb-tb' }, loc, this.lines, this.message);
  }

  update(failure: Failure, model: string): void {
    this.failure = failure;
    setText(this.scope, oneLine(failure.scope || model, 80));
    setText(this.place, failure.source ? sourceLabel(failure.source) : '');
    setShown(this.goto.el, failure.source !== null);
    this.lines.replaceChildren(...failure.code.map(codeLine));
    setShown(this.lines, failure.code.length > 0);
    setText(this.message, failure.message.slice(0, 4_000));
  }
}

/** The whole traceback, behind a button. */
export class FullTraceback {
  readonly el: HTMLElement;
  readonly button: Button;
  private readonly text = h('pre', { class: 'wb-traceback', tabindex: 0 });

  constructor() {
    const copy = new Button('is-quiet', { label: 'Copy', icon: 'copy' }, () => {
      void copyText(this.text.textContent ?? '').then((done) =>
        copy.set({ label: done ? 'Copied' : 'Copy it with the keyboard' }),
      );
    });
    this.el = h('div', { class: 'wb-full' }, copy.el, this.text);
    setShown(this.el, false);
    this.button = new Button('', { label: 'Show full traceback' }, () => {
      setShown(this.el, this.el.hidden);
      this.button.set({ label: this.el.hidden ? 'Show full traceback' : 'Hide full traceback' });
      this.button.el.setAttribute('aria-expanded', String(!this.el.hidden));
    });
  }

  update(failure: Failure): void {
    setText(this.text, failure.traceback);
    setShown(this.button.el, failure.traceback !== '');
  }
}

/** ``23 frames, 3 of them yours``. */
export function framesOf(failure: Failure): string {
  const { num_frames: all, num_user_frames: yours } = failure;
  if (all === 0) return '';
  return `${all} ${all === 1 ? 'frame' : 'frames'}, ${yours} of them yours`;
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
