/** Clicks and drags over the strip's cells: both choose a step, a drag passes over many. */
import type { Spot } from './paint';
import type { FlowView } from './view';

export function followPointer(view: FlowView): void {
  const { drawing } = view;
  const { element } = drawing;
  /** Where a drag began; a drag stays in its row. */
  let from: Spot | null = null;
  element.addEventListener('pointerdown', (event) => {
    from = event.button === 0 ? drawing.spotAt(event) : null;
    if (!from) return;
    element.setPointerCapture(event.pointerId);
    drawing.hover = null;
    view.setCursor(from);
    view.sendStep(true);
  });
  element.addEventListener('pointermove', (event) => {
    if (!from) return view.setHover(drawing.spotAt(event));
    const cell = drawing.cellAt(event);
    if (cell === drawing.cursor?.cell) return;
    view.setCursor({ row: from.row, cell });
    view.sendStep(true);
  });
  element.addEventListener('pointerup', () => {
    if (from) view.sendStep(false);
    from = null;
  });
  element.addEventListener('pointercancel', () => (from = null));
  element.addEventListener('pointerleave', () => view.setHover(null));
}
