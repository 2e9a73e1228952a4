import { h, setAttr } from '../dom';
import { learningRate as worded, parseNumber } from '../format';
import type { PanelContext } from './context';
import { fitted } from './fitted';

const LOW = -6;
const HIGH = -1;
/** A drag sends at most so often; every change that is sent leaves a marker. */
const SETTLE_MS = 250;

export interface LearningRateField {
  readonly el: HTMLElement;
  /** `described` is the id of what says what a rate does that is set here; empty without one. */
  update(value: number | null, locked: string, described: string): void;
}

/**
 * The learning rate on a log scale, live. An arrow moves it by a tenth of a decade, Page Up and
 * Page Down by a decade; in the field Enter applies and Escape reverts.
 */
export function learningRateField(context: PanelContext): LearningRateField {
  let applied: number | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const slider = h('input', {
    class: 'wb-range',
    type: 'range',
    min: LOW,
    max: HIGH,
    step: 0.1,
    'aria-label': 'Learning rate',
  });
  const field = h('input', {
    class: 'wb-input wb-rate',
    'aria-label': 'Learning rate value',
    inputmode: 'decimal',
    autocomplete: 'off',
  });
  const fit = fitted(field);
  const show = (value: number | null): void => {
    const text = worded(value);
    if (document.activeElement !== field) field.value = text;
    fit();
    if (value === null || value <= 0) return;
    const exponent = Math.min(HIGH, Math.max(LOW, Math.log10(value)));
    slider.value = String(exponent);
    slider.style.setProperty('--at', `${((100 * (exponent - LOW)) / (HIGH - LOW)).toFixed(1)}%`);
    setAttr(slider, 'aria-valuetext', text);
  };
  const apply = (value: number): void => {
    show(value);
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = undefined;
      void context.run('set_learning_rate', { value }).then((done) => {
        if (!done) show(applied);
      });
    }, SETTLE_MS);
  };
  slider.addEventListener('input', () => apply(fromSlider(Number(slider.value))));
  slider.addEventListener('keydown', (event) => {
    event.stopPropagation();
    const decade = { PageUp: 1, PageDown: -1 }[event.key];
    if (decade === undefined) return;
    event.preventDefault();
    apply(fromSlider(Math.min(HIGH, Math.max(LOW, Number(slider.value) + decade))));
  });
  const commit = (): void => {
    if (field.value === worded(applied)) return;
    const value = parseNumber(field.value);
    setAttr(field, 'aria-invalid', value !== null && value > 0 ? null : 'true');
    if (value !== null && value > 0) return apply(value);
    context.fail(`The learning rate must be a number above 0, got "${field.value.slice(0, 40)}"`);
  };
  field.addEventListener('change', commit);
  field.addEventListener('keydown', (event) => {
    event.stopPropagation();
    if (event.key === 'Enter') commit();
    if (event.key !== 'Escape') return;
    field.value = worded(applied);
    fit();
    setAttr(field, 'aria-invalid', null);
    context.fail('');
  });
  const wrap = h('span', { class: 'wb-range-wrap' }, slider);
  const el = h(
    'span',
    { class: 'wb-field' },
    h('span', { 'aria-hidden': 'true' }, 'Learning rate'),
  );
  el.append(wrap, field);
  return {
    el,
    update(value, locked, described) {
      setAttr(field, 'aria-describedby', described || null);
      slider.disabled = locked !== '';
      setAttr(field, 'readonly', locked !== '');
      const changed = value !== applied;
      applied = value;
      // While a drag is being sent the slider shows the requested value, not the old one.
      if (timer === undefined && changed && document.activeElement !== field) show(value);
    },
  };
}

/** Two digits, so that a tenth of a decade reads 1.3e-3 and not 1.2589e-3. */
function fromSlider(exponent: number): number {
  return Number((10 ** exponent).toPrecision(2));
}
