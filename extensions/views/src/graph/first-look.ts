/**
 * The first look at a drawing. It is chosen again with every size the view gets while its page is
 * still being laid out, and never after a person has moved, selected or opened something.
 */
import { LEGEND } from './legend';
import type { Surface } from './surface';

export class FirstLook {
  #taken = false;

  constructor(
    private readonly surface: Surface,
    private readonly legend: HTMLDetailsElement,
    /** Whether there is room for the legend beside the trunk. */
    private readonly roomy: () => boolean,
  ) {
    legend.addEventListener('click', () => this.take());
  }

  /** From here on nothing moves by itself. */
  take(): void {
    this.#taken = true;
  }

  /** A new drawing gets a first look of its own. */
  begin(): void {
    this.#taken = false;
    this.choose();
  }

  /** The legend stays open only where the drawing leaves it room. */
  choose(): void {
    const { surface, legend } = this;
    if (this.#taken || surface.camera.width <= 1) return;
    const roomy = this.roomy();
    legend.open = surface.open(roomy ? LEGEND.width : 0, LEGEND.height) && roomy;
  }
}
