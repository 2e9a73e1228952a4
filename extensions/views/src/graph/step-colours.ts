/**
 * The gradient norms of another step over the same drawing. A host that knows more steps than the
 * captured one hands them in with the store's state; layout, shapes and bytes stay the capture's.
 */
import { button, facts, h, note, section } from './dom';
import { formatCount, formatNumber } from './format';
import type { Item } from './groups';
import type { GraphState } from './state';

/** The L2 norm of the gradients of all parameters of a module, at one step. */
export interface StepNorm {
  /** NaN: no gradient, the module did not run. Infinity: one was not finite. */
  readonly norm: number;
  /** What it is the norm of: `block3`, `encoder.layer.0–3`. */
  readonly name: string;
}

export interface StepColours {
  readonly step: number;
  /** Logarithms (base 10) of the ends of the scale, over all steps; null where no norm is on one. */
  readonly range: readonly [number, number] | null;
  /** The norm that colours an item; null: no parameters, or not trained then. Called while drawing. */
  normOf(item: Item, state: GraphState): StepNorm | null;
}

/** `step 118`. */
export function stepName({ step }: StepColours): string {
  return `step ${formatCount(step)}`;
}

export function normText(norm: number): string {
  if (Number.isNaN(norm)) return 'did not run';
  return norm === Infinity ? '⚠ not finite' : formatNumber(norm);
}

/** The inspector's part on a step: the norm, and what of the model it is the norm of. */
export function stepSection(state: GraphState, colours: StepColours, item: Item): HTMLElement {
  const found = colours.normOf(item, state);
  const body = found
    ? facts([
        ['Norm', normText(found.norm)],
        ['Of', found.name],
      ])
    : note('No parameters of its own, or not trained at that step.');
  return section('Gradient of the parameters', stepName(colours), body);
}

/** Requests the captured step from the host again. */
export function leaveStep(element: HTMLElement): void {
  const how = { bubbles: true, composed: true, detail: { step: null } };
  element.dispatchEvent(new CustomEvent('workbench:step', how));
}

/** Says over the drawing which step its colours are of, and what is not of that step. */
export function showStep(element: HTMLElement, state: GraphState | null): void {
  const colours = state?.colours;
  element.hidden = !colours;
  if (!state || !colours) return;
  const { step } = state.record;
  const captured = step === null ? 'the capture' : `captured step ${formatCount(step)}`;
  const text = `Gradient norm per module at ${stepName(colours)}. Shapes and bytes: ${captured}.`;
  const leave = button(`Back to ${captured}`, () => leaveStep(element), {}, 'Esc');
  element.replaceChildren(h('span', 'text', text), leave);
}
