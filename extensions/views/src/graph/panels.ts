/** Which side panels are open, by the room there is and by what a person chose. */
import { newSize } from './follow';

const ROOM_FOR_LEGEND = 860;

export interface PanelParts {
  /** The whole view; `data-size` on it drives the stylesheet. */
  view: HTMLElement;
  main: HTMLElement;
  tree: HTMLElement;
  inspector: HTMLElement;
  changed: (tree: boolean, inspector: boolean) => void;
}

export class Panels {
  #open = { tree: true, inspector: true };
  #filled = false;

  constructor(private readonly parts: PanelParts) {}

  /** Whether the inspector is over the drawing, and how wide it is there. */
  get covered(): number {
    const { view, inspector } = this.parts;
    return view.dataset['size'] === 'wide' ? 0 : inspector.offsetWidth;
  }

  /** Whether the legend can be open beside the drawing's trunk, never over it. */
  get roomy(): boolean {
    return this.parts.main.clientWidth >= ROOM_FOR_LEGEND;
  }

  toggle(panel: 'tree' | 'inspector'): void {
    this.set({ [panel]: !this.#open[panel] });
  }

  set(change: { tree?: boolean; inspector?: boolean }): void {
    const { tree, inspector, changed } = this.parts;
    this.#open = { ...this.#open, ...change };
    tree.hidden = !this.#open.tree || !this.#filled;
    inspector.hidden = !this.#open.inspector || !this.#filled;
    changed(this.#open.tree, this.#open.inspector);
  }

  /** A selection is worth opening the details for where there is some room. */
  selected(): void {
    if (this.parts.view.dataset['size'] === 'medium') this.set({ inspector: true });
  }

  /** There is nothing to show beside the drawing before the first record. */
  fill(filled: boolean): void {
    this.#filled = filled;
    this.set({});
  }

  /** Follows the size of the view; what a person chose stays until the size class changes. */
  resize(): void {
    const { view } = this.parts;
    const size = newSize(view);
    if (!size) return;
    // one attribute for all that gives way to the drawing
    view.toggleAttribute('data-small', size !== 'wide');
    this.set({ tree: size !== 'narrow', inspector: size === 'wide' });
  }
}
