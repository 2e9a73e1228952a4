/** What our views are in the page: panels and lists, and the views of records. */
const VIEWS = '.wb, .wv-view';
/** A tab of our own: no notebook is around it, and shortcuts of the settings are for it. */
const TABS = '.jp-Workbench-document';
/** Lumino looks for no shortcut where an element around the focus has this. */
const SUPPRESSED = 'data-lm-suppress-shortcuts';

/**
 * Keeps keys that are pressed in one of our views from the notebook around it.
 *
 * JupyterLab looks for shortcuts on the way down to the element that has the focus, before the view
 * hears of a key: `b` on a button would insert a cell, `x` cut the one whose output the view is.
 * Keys with Ctrl, Alt or Command go on being the application's (save, the palette), but for Enter,
 * which would run the cell.
 */
export function keepKeys(page: Window & typeof globalThis): () => void {
  const down = (event: KeyboardEvent): void => {
    const view = event.target instanceof Element ? event.target.closest(VIEWS) : null;
    if (view === null || view.closest(TABS) !== null) {
      return;
    }
    view.toggleAttribute(SUPPRESSED, !isForPage(event));
    if (!isForPage(event)) {
      // a notebook that hears of a key takes the focus to its active cell
      view.addEventListener('keydown', (own) => own.stopPropagation(), { once: true });
    }
  };
  page.addEventListener('keydown', down, true);
  return () => page.removeEventListener('keydown', down, true);
}

function isForPage({ ctrlKey, metaKey, altKey, key }: KeyboardEvent): boolean {
  return (ctrlKey || metaKey || altKey) && key !== 'Enter';
}
