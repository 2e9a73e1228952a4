import type { JupyterFrontEnd } from '@jupyterlab/application';
import { SplitPanel, TabPanel, type Widget } from '@lumino/widgets';

/** Of the page's height; Notebook 7 opens the place below its document without any. */
const LEAST_SHARE = 0.2;

/**
 * Shows a tab of ours: in JupyterLab's main area, which may be laid out later. Another application,
 * Notebook 7, has room for one document there and says nothing of a second: what is made of that
 * document stands below it.
 */
export function showTab(shell: JupyterFrontEnd.IShell, tab: Widget, hasTabs: boolean): void {
  if (!tab.isAttached) {
    shell.add(tab, hasTabs ? 'main' : 'down', { mode: 'tab-after' });
  }
  shell.activateById(tab.id);
  const tabs = tab.parent?.parent;
  if (tabs instanceof TabPanel) {
    tabs.currentWidget = tab;
    const split = tabs.parent;
    if (split instanceof SplitPanel && (split.relativeSizes().at(-1) ?? 1) < LEAST_SHARE) {
      split.setRelativeSizes([1, 1]);
    }
  }
}

/** What a person has before them: the tab in front, and the one below it where there is one. */
export function inFront(shell: JupyterFrontEnd.IShell): readonly Widget[] {
  const below = [...shell.widgets('down')].filter((one) => one.isVisible);
  return shell.currentWidget === null ? below : [shell.currentWidget, ...below];
}
