/** Keys of the memory view. Letters are left alone while a person types. */
import type { MemoryView } from './view';

const ZOOM = 0.7;

/** Carries out a key, and keeps it from the host when it was one of ours. */
export function handleKey(view: MemoryView, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement;
  const handled = typing ? typingKey(view, event.key) : viewKey(view, event);
  if (handled) event.preventDefault();
  // JupyterLab binds single letters in command mode; none of them may leave the view.
  if (handled || typing) event.stopPropagation();
}

function typingKey(view: MemoryView, key: string): boolean {
  if (key !== 'Escape') return false;
  view.search.value = '';
  view.refresh();
  view.chart.element.focus();
  return true;
}

function viewKey(view: MemoryView, event: KeyboardEvent): boolean {
  const { chartView } = view;
  if (!chartView) return false;
  const onChart = event.target === view.chart.element;
  const stride = event.shiftKey ? 10 : 1;
  const { scrubber, from, to } = chartView;
  const zoom = (factor: number): void =>
    view.range(scrubber - (scrubber - from) * factor, scrubber + (to - scrubber) * factor);
  if (event.key === 'ArrowLeft' && onChart) view.scrub(scrubber - stride);
  else if (event.key === 'ArrowRight' && onChart) view.scrub(scrubber + stride);
  else if (event.key === 'Home') view.scrub(0);
  else if (event.key === 'End') view.toPeak();
  else if (event.key === '+' || event.key === '=') zoom(ZOOM);
  else if (event.key === '-' || event.key === '_') zoom(1 / ZOOM);
  else if (event.key === 'f' || event.key === 'F') view.range(0, Infinity);
  else if (event.key === 't' || event.key === 'T') view.toggleTable();
  else if (event.key === '/') view.search.focus();
  else if (event.key === 'Escape' && view.selected !== null) view.select(view.selected);
  else return false;
  return true;
}
