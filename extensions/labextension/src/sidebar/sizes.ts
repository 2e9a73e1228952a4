import type { AccordionPanel } from '@lumino/widgets';
import type { Section } from './section';

const LEAST = 40;
/** A long list scrolls within its section rather than push the others out of sight. */
const MOST = 300;
/** The layout rounds shares down; one pixel short shows a scrollbar. */
const ROUNDING = 1;

/** Gives every section the height its content needs, and the last one what is left. */
export class NaturalSizes {
  constructor(
    private readonly panel: AccordionPanel,
    private readonly sections: readonly Section[],
  ) {
    for (const section of sections) {
      section.resized.connect(() => this.schedule());
    }
    // Whoever drags a handle has decided for himself.
    panel.handleMoved.connect(() => (this.byHand = true));
  }

  /** Distributes the height anew before the next frame. */
  schedule(): void {
    if (this.frame === 0 && !this.byHand) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.apply();
      });
    }
  }

  private apply(): void {
    if (!this.panel.isVisible || this.byHand) {
      return;
    }
    const open = this.sections.map((section) => !section.isHidden);
    // What the layout gave them together: titles and spacing are taken off already.
    const room = this.sections.reduce((sum, { node }) => sum + node.offsetHeight, 0);
    const sizes = this.sections.map((section, index) =>
      open[index] ? Math.min(MOST, Math.max(LEAST, section.naturalHeight + ROUNDING)) : 0,
    );
    const last = open.lastIndexOf(true);
    if (last >= 0) {
      const others = sizes.reduce((sum, size, index) => (index === last ? sum : sum + size), 0);
      // Its list scrolls before any section above it has to.
      sizes[last] = Math.max(2 * LEAST, room - others);
      this.panel.setRelativeSizes(sizes);
    }
  }

  private frame = 0;
  private byHand = false;
}
