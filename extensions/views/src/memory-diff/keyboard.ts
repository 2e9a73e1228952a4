/** Keys of the diff of two memory records. Letters are left alone while a person types. */
import { BY } from './naming';
import type { MemoryDiffView } from './view';

/** Carries out a key, and keeps it from the host when it was one of ours. */
export function handleKey(view: MemoryDiffView, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement;
  const handled = typing ? typingKey(view, event.key) : viewKey(view, event.key);
  if (handled) event.preventDefault();
  // JupyterLab binds single letters in command mode; none of them may leave the view.
  if (handled || typing) event.stopPropagation();
}

function typingKey(view: MemoryDiffView, key: string): boolean {
  if (key === 'Escape') view.bar.clear();
  if (key === 'Escape' || key === 'ArrowDown' || key === 'Enter') view.list.focus();
  else return false;
  return true;
}

function viewKey(view: MemoryDiffView, key: string): boolean {
  const by = BY[Number(key) - 1];
  if (by) view.group(by);
  else if (key === '/') view.bar.search.focus();
  else if (key === 'Escape' && view.pair?.selected != null) view.select(null);
  else if (key.toLowerCase() === 'x') view.swap();
  else if (key.toLowerCase() === 't') view.setTable(!view.isTable);
  else if (key.toLowerCase() === 'd') view.setDetails(!view.hasDetails);
  else return false;
  return true;
}
