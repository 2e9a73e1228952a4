/** Keys of the graph view. Letters are left alone while a person types. */
import type { Drawing } from './drawing';
import type { GraphView } from './view';
import { isOperation } from './operations';
import { step, type Direction } from './walk';

const ARROWS: Record<string, Direction> = {
  ArrowUp: 'up',
  ArrowDown: 'down',
  ArrowLeft: 'left',
  ArrowRight: 'right',
};

/** Carries out a key, and keeps it from the host when it was one of ours. */
export function handleKey<S extends Drawing>(view: GraphView<S>, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement;
  if (typing ? typingKey(view, event.key) : viewKey(view, event)) event.preventDefault();
  // a list may have carried it out before
  if (typing || event.defaultPrevented) event.stopPropagation();
}

function typingKey<S extends Drawing>(view: GraphView<S>, key: string): boolean {
  if (key !== 'Escape') return false;
  view.finder.clear();
  view.canvas.focus();
  return true;
}

function viewKey<S extends Drawing>(view: GraphView<S>, event: KeyboardEvent): boolean {
  const { state } = view;
  const onCanvas = event.target === view.canvas;
  const direction = ARROWS[event.key];
  if (direction && onCanvas && state) {
    const next = step(state, direction);
    if (next) view.select(next, true);
    return true;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (view.face.key(view, key)) return true;
  switch (key) {
    case '/':
      view.finder.focus();
      return true;
    case 'f':
      view.fit();
      return true;
    case '+':
    case '=':
      view.zoom(1.25);
      return true;
    case '-':
    case '_':
      view.zoom(1 / 1.25);
      return true;
    case 't':
      view.toggleTable();
      return true;
    case 'Enter':
      if (!onCanvas || !state?.selected || isOperation(state.selected)) return onCanvas;
      view.toggle(state.selected);
      return true;
    case 'Escape':
      return back(view);
    default:
      return false;
  }
}

/** Out of the table, what is lit, the search, then out to the module around, then nothing. */
function back<S extends Drawing>(view: GraphView<S>): boolean {
  const { state } = view;
  if (view.table) view.toggleTable();
  else if (state?.highlight) view.unlight();
  else if (state?.query) view.finder.clear();
  else if (state?.selected) {
    const parent = state.parent(state.selected);
    view.select(parent === state.tree.root ? null : parent, true);
  } else return false;
  return true;
}
