/** What the inspector is about: the chosen block, a refused request, or the whole capture. */
import { h, link } from '../graph/dom';
import { inspectBlock } from './inspect-block';
import { inspectRefusal } from './inspect-refusal';
import { inspectCapture } from './inspector';
import type { Model } from './model';
import type { MemoryView } from './view';

export function inspect(element: HTMLElement, model: Model, view: MemoryView): void {
  const { selected } = view;
  const { refusal } = model;
  if (selected === null && refusal === null) inspectCapture(element, model);
  else if (selected === null && refusal !== null)
    inspectRefusal(element, model, refusal, (block) => view.select(block));
  else if (selected !== null) {
    inspectBlock(element, model, selected, view);
    if (refusal === null) return;
    const back = link('‹ Out of memory', () => view.select(null), 'Back to the request (Esc)');
    element.prepend(h('div', { class: 'wv-back' }, back));
  }
}
