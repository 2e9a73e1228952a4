/**
 * What `wb.tensorboard()` displays: a button that requests a TensorBoard tab from the page, pressed once
 * by itself when the cell has just run. Outside JupyterLab tabs cannot be opened; the shell command
 * that shows the same is there instead.
 */
import { Button, h } from '@torch-workbench/views/controls';
import css from '@torch-workbench/views/style/controls.css';
import type { RenderProps } from './adapters/host';
import { adoptStyle } from './adapters/style';

const ELSEWHERE = 'TensorBoard cannot be opened in a tab here. In a terminal:';

function render({ model, el }: RenderProps): void {
  adoptStyle(el, 'tensorboard', css);
  const path = String(model.get('logdir') ?? '');
  const command = h('code', {}, String(model.get('command') ?? ''));
  const hint = h('p', { class: 'wb-note', role: 'status', hidden: '' }, `${ELSEWHERE} `, command);
  const open = (): void => {
    const init = { detail: { kind: 'tensorboard', path }, bubbles: true, cancelable: true };
    hint.hidden = !button.el.dispatchEvent(
      new CustomEvent('workbench:open', { ...init, composed: true }),
    );
  };
  const state = { label: 'Open TensorBoard', icon: 'tensorboard', title: path } as const;
  const button = new Button('', state, open, 'external');
  el.append(h('div', { class: 'wb wb-actions' }, button.el, hint));
  if (model.get('opened') !== true) {
    model.set('opened', true);
    model.save_changes();
    // the element is attached after render returns, and an event must bubble to the page
    requestAnimationFrame(open);
  }
}

export default { render };
