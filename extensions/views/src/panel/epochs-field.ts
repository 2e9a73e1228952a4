import { h, setAttr } from '../dom';
import { count } from '../format';
import type { PanelContext } from './context';
import { fitted } from './fitted';

export interface EpochsField {
  readonly el: HTMLElement;
  /** The number in the field; null when it is none (and that was said). */
  value(): number | null;
  update(epochs: number, locked: string): void;
}

const MOST = 1_000_000;

/** Epochs of the current or next run. Enter or leaving the field applies, Escape reverts. */
export function epochsField(context: PanelContext): EpochsField {
  let applied = 1;
  const input = h('input', {
    class: 'wb-input wb-epochs',
    inputmode: 'numeric',
    autocomplete: 'off',
  });
  const fit = fitted(input);
  const put = (epochs: number): void => {
    input.value = String(epochs);
    fit();
  };
  const read = (): number | null => {
    const value = Number(input.value.trim());
    const fine = Number.isInteger(value) && value >= 1 && value <= MOST;
    setAttr(input, 'aria-invalid', fine ? null : 'true');
    if (fine) return value;
    context.fail(
      `Epochs must be a whole number from 1 to ${count(MOST)}, got "${input.value.slice(0, 40)}"`,
    );
    return null;
  };
  const apply = (): void => {
    if (input.value.trim() === String(applied)) return;
    const value = read();
    if (value === null) return;
    applied = value;
    void context.run('set_epochs', { epochs: value });
  };
  input.addEventListener('change', apply);
  input.addEventListener('keydown', (event) => {
    event.stopPropagation();
    if (event.key === 'Enter') apply();
    if (event.key !== 'Escape') return;
    put(applied);
    setAttr(input, 'aria-invalid', null);
    context.fail('');
  });
  return {
    el: h('label', { class: 'wb-field' }, 'Epochs', input),
    value: read,
    update(epochs, locked) {
      setAttr(input, 'readonly', locked !== '');
      const editing = document.activeElement === input && input.value !== String(applied);
      if (editing || epochs === applied) {
        if (input.value === '') put(epochs);
        applied = epochs;
        return;
      }
      applied = epochs;
      put(epochs);
    },
  };
}
