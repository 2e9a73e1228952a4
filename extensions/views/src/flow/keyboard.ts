/** Keys of the strip. */
import type { FlowView } from './view';

/** Carries out a key, and keeps it from the host when it was one of ours. */
export function handleKey(view: FlowView, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || !carriedOut(view, event)) return;
  event.preventDefault();
  event.stopPropagation(); // JupyterLab binds single letters in command mode
}

function carriedOut(view: FlowView, event: KeyboardEvent): boolean {
  const onCanvas = event.target === view.drawing.element;
  const far = event.shiftKey ? 10 : 1;
  if (event.key === 'ArrowLeft' && onCanvas) view.moveCursor(0, -far);
  else if (event.key === 'ArrowRight' && onCanvas) view.moveCursor(0, far);
  else if (event.key === 'ArrowUp' && onCanvas) view.moveCursor(-1, 0);
  else if (event.key === 'ArrowDown' && onCanvas) view.moveCursor(1, 0);
  else if (event.key === 'Home' && onCanvas) view.moveCursor(0, -Infinity);
  else if (event.key === 'End' && onCanvas) view.moveCursor(0, Infinity);
  else if ((event.key === 'Enter' || event.key === ' ') && onCanvas) view.sendStep(false);
  else if (event.key === 'Escape') return view.leave();
  else if (event.key === '[') view.moveStep(-1);
  else if (event.key === ']') view.moveStep(1);
  else if (event.key === 't' || event.key === 'T') view.toggleTable();
  else return false;
  return true;
}
