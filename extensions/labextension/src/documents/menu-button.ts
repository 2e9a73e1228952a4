import { MenuSvg } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { Menu } from '@lumino/widgets';

/** A button in a view's bar that opens a menu of JupyterLab's below itself. */
export class MenuButton {
  readonly element: HTMLButtonElement;

  constructor(
    private readonly commands: CommandRegistry,
    /** Fills the menu, each time that it opens. */
    private readonly fill: (menu: Menu) => void,
    /** Which edges of button and menu are aligned. */
    private readonly edge: 'left' | 'right' = 'left',
  ) {
    this.element = document.createElement('button');
    this.element.type = 'button';
    this.element.className = 'wv-btn jp-Workbench-menuButton';
    this.element.setAttribute('aria-haspopup', 'menu');
    this.element.setAttribute('aria-expanded', 'false');
    this.element.addEventListener('click', () => this.open());
    this.element.append(this.text, arrow());
  }

  /** What the button says: a word, and what it stands at. */
  say(word: string, value = ''): void {
    // Called for every message of the kernel: the page is touched when there is something new.
    if (this.text.textContent === `${word} ${value}`) {
      return;
    }
    const strong = document.createElement('b');
    strong.textContent = value;
    this.text.replaceChildren(`${word} `, strong);
  }

  /**
   * Turns the button off with the reason as its tooltip, or, with an empty one, on. It stays in the
   * focus order: the reason must be within reach of the keyboard, too.
   */
  allow(reason: string, caption: string): void {
    this.element.setAttribute('aria-disabled', String(reason !== ''));
    this.element.title = reason || caption;
  }

  private open(): void {
    const { element } = this;
    if (element.getAttribute('aria-disabled') === 'true') {
      return;
    }
    const menu = new MenuSvg({ commands: this.commands, renderer: new CaptionRenderer() });
    menu.addClass('jp-Workbench-menu');
    this.fill(menu);
    element.setAttribute('aria-expanded', 'true');
    menu.aboutToClose.connect(() => {
      element.setAttribute('aria-expanded', 'false');
      // A command may lead elsewhere; the focus comes back here first.
      element.focus();
    });
    const box = element.getBoundingClientRect();
    menu.open(box[this.edge], box.bottom + 2, { horizontalAlignment: this.edge });
    menu.activateNextItem();
  }

  private readonly text = document.createElement('span');
}

/** Shows the caption of an entry when it is pointed at: the reason why it cannot be chosen. */
class CaptionRenderer extends MenuSvg.Renderer {
  override renderItem(data: Menu.IRenderData): ReturnType<Menu.Renderer['renderItem']> {
    const node = super.renderItem(data);
    Object.assign(node.attrs, { title: data.item.caption });
    return node;
  }
}

function arrow(): HTMLElement {
  const element = document.createElement('i');
  element.setAttribute('aria-hidden', 'true');
  return element;
}
