/**
 * The first look at a drawing. It is chosen again with every size the view gets while its page is
 * still being laid out, and never after a person has moved, selected or opened something. Only the
 * legend still closes then where it would lie over the drawing, unless that person pressed it.
 */
import { LEGEND } from './legend';
import type { Surface } from './surface';

export class FirstLook {
  #taken = false;
  #pressed = false;

  constructor(
    private readonly surface: Surface,
    private readonly legend: HTMLDetailsElement,
    /** Whether there is room for the legend beside the trunk. */
    private readonly roomy: () => boolean,
  ) {
    legend.addEventListener('click', () => {
      this.#pressed = true;
      this.take();
    });
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
    if (surface.camera.width <= 1) return;
    const roomy = this.roomy();
    if (this.#taken) {
      if (!roomy && !this.#pressed) legend.open = false;
    } else legend.open = surface.open(roomy ? LEGEND.width : 0, LEGEND.height) && roomy;
  }
}
