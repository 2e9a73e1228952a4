import type { ExperimentState } from '@torch-workbench/records';
import { Button } from '../controls/button';
import { h, setShown, setText } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { PanelContext } from './context';
import { pythonLine } from './python-code';

/** After a failure: that the model is the old one, and what swaps in the one of the mended code. */
export class NewerModelRow {
  readonly el: HTMLElement;
  readonly button: Button;
  private readonly text = h('span');
  private readonly code = h('code');

  /** `resume` is what would fail again: it is the main action only while there is nothing newer. */
  constructor(
    context: PanelContext,
    private readonly resume: Button,
  ) {
    this.button = new Button(
      '',
      { label: 'Swap in the new model and resume', icon: 'resume', primary: true },
      () => void context.run('swap_in', {}),
    );
    const said = h('span', {}, this.text, ' ', this.code);
    this.el = h('p', { class: 'wb-newer' }, icon('info'), said);
  }

  update(newer: ExperimentState['newer_model'], locked: string): void {
    const can = (newer?.code ?? '') !== '';
    setShown(this.el, newer !== null);
    setShown(this.button.el, can);
    setShown(this.code, can);
    this.button.set({ disabled: locked || false });
    this.resume.set({ primary: !can });
    setText(this.text, oneLine(newer?.text ?? '', 400));
    if (this.code.textContent !== newer?.code) {
      this.code.replaceChildren(pythonLine(newer?.code ?? ''));
    }
  }
}
