/** Keys of the memory view. Letters are left alone while a person types. */
import { hasFlame } from './callers';
import type { MemoryView } from './view';

const ZOOM = 0.7;

/** Carries out a key, and keeps it from the host when it was one of ours. */
export function handleKey(view: MemoryView, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof HTMLSelectElement) return; // a letter there finds its option
  const typing = event.target instanceof HTMLInputElement;
  const handled = typing ? typingKey(view, event.key) : viewKey(view, event);
  if (handled) event.preventDefault();
  // JupyterLab binds single letters in command mode; none of them may leave the view.
  if (handled || typing) event.stopPropagation();
}

function typingKey(view: MemoryView, key: string): boolean {
  if (key !== 'Escape') return false;
  view.bar.clear();
  view.chart.element.focus();
  return true;
}

function viewKey(view: MemoryView, event: KeyboardEvent): boolean {
  const { model } = view;
  if (!model) return false;
  if (view.map.contains(event.target) && event.key.startsWith('Arrow')) {
    view.settle();
    return view.map.walk(event.key);
  }
  if (view.face === 'flame' && flameKey(view, event)) return true;
  const { scrubber, from, to } = model.view;
  const stride = event.shiftKey ? 10 : 1;
  const onChart = event.target === view.chart.element;
  if (onChart && event.key === 'ArrowLeft') view.scrub(scrubber - stride);
  else if (onChart && event.key === 'ArrowRight') view.scrub(scrubber + stride);
  else if (event.key === 'Home') view.scrub(0);
  else if (event.key === 'End') view.toPeak();
  else if (event.key === '/') view.bar.search.focus();
  else if (event.key === 'Escape' && view.selected !== null) view.select(null);
  else if (event.key === '+' || event.key === '=' || event.key === '-' || event.key === '_') {
    const factor = event.key === '+' || event.key === '=' ? ZOOM : 1 / ZOOM;
    view.range(scrubber - (scrubber - from) * factor, scrubber + (to - scrubber) * factor);
  } else return letterKey(view, event.key.toLowerCase());
  return true;
}

function flameKey(view: MemoryView, event: KeyboardEvent): boolean {
  return view.flame.key(event) || (event.key === 'Escape' && view.flame.back());
}

function letterKey(view: MemoryView, key: string): boolean {
  const segments = view.model?.hasSegments ?? false;
  const block = view.selected;
  const record = view.model?.record;
  if (key === 'f') view.range(0, Infinity);
  else if (key === 't') view.show(view.face === 'table' ? 'map' : 'table');
  else if (key === 'h') view.show('holders');
  else if (key === 's' && record && hasFlame(record)) view.show('flame');
  else if ((key === 'm' || key === 'l') && segments) view.show('map');
  else if (key === 'r') view.bar.toRelease();
  else if (key === 'o') view.bar.toRefusal();
  else if (key === '[' && block !== null && (record?.block_start[block] ?? -1) >= 0)
    view.scrub((record?.block_start[block] ?? 0) + 1);
  else if (key === ']' && block !== null && (record?.block_end[block] ?? -1) >= 0)
    view.scrub(record?.block_end[block] ?? 0);
  else return false;
  return true;
}
