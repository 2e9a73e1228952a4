/**
 * The first look at a drawing. It is chosen again with every size the view gets while its page is
 * still being laid out, and never after a person has moved, selected or opened something. What is
 * then shown or opened still gives way to the open legend, or that closes, unless it was pressed.
 */
import { on } from './dom';
import { gather } from './gather';
import type { Box } from './layout';
import { LEGEND, LEGEND_BUTTON } from './legend';
import type { Surface } from './surface';

export class FirstLook {
  #taken = false;
  #pressed = false;
  #place = LEGEND;

  constructor(
    private readonly surface: Surface,
    private readonly legend: HTMLDetailsElement,
    /** Whether there is room for the legend beside the trunk. */
    private readonly roomy: () => boolean,
  ) {
    on(legend, 'click', () => {
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

  /** What the open legend takes, as it is filled now. */
  get place(): typeof LEGEND {
    const { offsetHeight: height, open } = this.legend;
    // Below that it has not been filled yet.
    if (open && height > LEGEND_BUTTON.height) this.#place = { ...LEGEND, height: height + 24 };
    return this.#place;
  }

  /** Pixels at the right that the open legend keeps for itself. */
  get reserved(): number {
    return this.legend.open && this.roomy() ? LEGEND.width : 0;
  }

  /** Shows a box, beside the inspector's `covered` pixels and the legend. */
  show(box: Box, reveal: boolean, covered: number): void {
    this.surface.show(box, reveal, covered, () => (this.giveWay(true) ? 0 : this.reserved));
  }

  /** Moves to what is lit, unless half of it is in view. */
  showLit(boxes: readonly Box[], covered: number): void {
    const rects = boxes.map(({ node, y, height }) => ({ ...node, y, height }));
    this.surface.animate((camera) => {
      if (gather(camera, rects, covered)) this.giveWay(true);
    });
  }

  /**
   * After the view itself moved or changed the drawing: that gives way to the open legend where it
   * may `move`, else the legend closes. Returns whether nothing is under the legend.
   */
  giveWay(move: boolean): boolean {
    const { surface, legend } = this;
    if (legend.open && surface.clear(this.place, move)) return true;
    if (!this.#pressed) legend.open = false;
    return !legend.open && surface.clear(LEGEND_BUTTON, move);
  }

  /** The legend was filled anew: another colouring may need more lines than there is room for. */
  filled(): void {
    const { height } = this.#place;
    if (!this.#taken) this.choose();
    else if (this.place.height > height) this.giveWay(false);
  }

  /** The legend stays open only where the drawing leaves it room. */
  choose(): void {
    const { surface, legend } = this;
    if (surface.camera.width <= 1) return;
    const roomy = this.roomy();
    if (this.#taken) {
      if (!roomy && !this.#pressed) legend.open = false;
      return;
    }
    legend.open = roomy;
    legend.open = surface.open(roomy ? this.place : null);
  }
}
