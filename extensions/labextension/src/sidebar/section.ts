import type { TranslationBundle } from '@jupyterlab/translation';
import { PanelWithToolbar, Toolbar, ToolbarButton, type LabIcon } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { Notice } from '../notice';

type Mount = (node: HTMLElement) => () => void;

/**
 * One section of the side panel: a view of ours below a title of JupyterLab's, or one sentence
 * that says why there is nothing to show.
 */
export class Section extends PanelWithToolbar {
  /** The content grew or shrank. */
  readonly resized: Signal<Section, void> = new Signal(this);

  constructor(title: string, trans: TranslationBundle) {
    super();
    this.addClass('jp-Workbench-section');
    this.title.label = title;
    this.toolbar.node.setAttribute('aria-label', trans.__('%1 actions', title));
    this.caption.addClass('jp-Workbench-caption');
    this.toolbar.addItem('caption', this.caption);
    this.toolbar.addItem('spacer', Toolbar.createSpacerItem());
    this.body.addClass('jp-Workbench-body');
    this.body.node.setAttribute('role', 'group');
    this.body.node.setAttribute('aria-label', title);
    this.addWidget(this.notice);
    this.addWidget(this.body);
    this.observer = new ResizeObserver(() => this.resized.emit());
    this.observer.observe(this.body.node);
    this.observer.observe(this.notice.node);
  }

  override dispose(): void {
    this.observer.disconnect();
    this.unmount?.();
    super.dispose();
  }

  /** What stands beside the title: `3 in this kernel`. */
  set note(text: string) {
    if (this.caption.node.textContent !== text) {
      this.caption.node.textContent = text;
      this.caption.node.title = text;
    }
  }

  /** Height in pixels at which nothing of it has to scroll. */
  get naturalHeight(): number {
    const shown = this.body.isHidden ? this.notice.node : this.body.node;
    return shown.offsetHeight;
  }

  /** Adds a button at the right end of the title. */
  addButton(name: string, icon: LabIcon, tooltip: string, onClick: () => void): ToolbarButton {
    const button = new ToolbarButton({ icon, tooltip, onClick });
    this.toolbar.addItem(name, button);
    return button;
  }

  /** Shows a view; the one before is ended. `key` shows whether it is another one. */
  display(key: unknown, mount: Mount): void {
    if (key !== this.key) {
      this.clear();
      this.key = key;
      this.unmount = mount(this.body.node);
    }
    this.notice.hide();
    this.body.show();
  }

  /** Shows one sentence instead of a view. */
  showMessage(...what: Parameters<Notice['showMessage']>): void {
    this.clear();
    this.body.hide();
    this.notice.show();
    this.notice.showMessage(...what);
  }

  private clear(): void {
    this.unmount?.();
    this.unmount = null;
    this.key = null;
    this.body.node.replaceChildren();
  }

  private readonly caption = new Widget();
  private readonly body = new Widget();
  private readonly notice = new Notice();
  private readonly observer: ResizeObserver;
  private key: unknown = null;
  private unmount: (() => void) | null = null;
}
