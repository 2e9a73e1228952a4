/** Keys of the compile report. Letters are left alone while a person types. */
import type { CompileView } from './view';

/** Carries out a key, and keeps it from the host when it was one of ours. */
export function handleKey(view: CompileView, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement;
  const handled = typing ? typingKey(view, event.key) : viewKey(view, event.key);
  if (handled) event.preventDefault();
  // JupyterLab binds single letters and Enter in command mode; none of them may leave the view.
  if (handled || typing || event.key === 'Enter' || event.key === ' ') event.stopPropagation();
}

function typingKey(view: CompileView, key: string): boolean {
  if (key === 'Escape') view.clear();
  if (key === 'Escape' || key === 'ArrowDown' || key === 'Enter') view.findings.focus();
  else return false;
  return true;
}

function viewKey(view: CompileView, key: string): boolean {
  switch (key.toLowerCase()) {
    case '/':
      view.search.focus();
      return true;
    case 'b':
      view.findings.focus();
      return true;
    case 'g':
      view.pieces.focus();
      return true;
    case 'k':
      view.kernels.focus();
      return true;
    case 'c':
      void view.kernels.code.copied();
      return true;
    default:
      return false;
  }
}
