/** Keeps a view in step with what it depends on, from the moment it stands in the page. */
import { watchSize } from '../dom';
import type { Dispose, Store } from '../store';
import { followTheme, type Palette } from './theme';

/** What a view does when one of them changes. */
export interface Changes {
  key: (event: KeyboardEvent) => void;
  /** Takes the colours of the page, at once and whenever they change. */
  theme: (palette: Palette) => void;
  update: () => void;
  /** The view, or what is drawn in it, has another size. */
  resize: () => void;
}

/** Follows keys, theme, store and sizes until the returned function is called. */
export function follow(
  view: HTMLElement,
  drawn: HTMLElement,
  store: Pick<Store<unknown, never>, 'subscribe'>,
  { key, theme, update, resize }: Changes,
): Dispose {
  view.addEventListener('keydown', key);
  const sizes = watchSize(resize, view, drawn);
  const ends = [followTheme(view, theme), store.subscribe(update), sizes];
  return () => ends.forEach((end) => end());
}

const NARROW = 700;
const MEDIUM = 1150;

/**
 * Marks a view as narrow, medium or wide for its stylesheet, `unseen` pixels where it has no width
 * yet; gives its size where that is news.
 */
export function newSize(
  { clientWidth, dataset }: HTMLElement,
  medium = MEDIUM,
  unseen = 1000,
): string | null {
  const width = clientWidth || unseen;
  const size = width < NARROW ? 'narrow' : width < medium ? 'medium' : 'wide';
  if (dataset['size'] === size) return null;
  return (dataset['size'] = size);
}
