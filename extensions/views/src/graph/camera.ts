/** Where the drawing is looked at from. */

export const SMALLEST = 0.01;
export const LARGEST = 3;
/** Pixels left free on both sides together. */
const MARGIN = 48;
/** Down to here the first look shows a drawing's whole width: every name can still be read. */
export const STILL_NAMED = 0.72;
/** From these zooms on all text is drawn, and names and bars (`paint.ts`). */
export const DETAILS = [0.85, 0.6] as const;

/** A zoom that falls 3 % or less short of more text; `most` is the largest that loses no more than margin. */
function readable(zoom: number, most: number): number {
  const next = DETAILS.find((limit) => zoom < limit && limit <= Math.min(most, zoom * 1.03));
  return next ?? zoom;
}

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export type Size = Readonly<Pick<Rect, 'width' | 'height'>>;

export class Camera {
  x = 0;
  y = 0;
  zoom = 1;
  width = 1;
  height = 1;

  /** Drawing coordinates of a point of the screen. */
  toDrawing(screenX: number, screenY: number): { x: number; y: number } {
    return { x: this.x + screenX / this.zoom, y: this.y + screenY / this.zoom };
  }

  /** What is visible, in drawing coordinates. */
  view(): Rect {
    return { x: this.x, y: this.y, width: this.width / this.zoom, height: this.height / this.zoom };
  }

  pan(dx: number, dy: number): void {
    this.x -= dx / this.zoom;
    this.y -= dy / this.zoom;
  }

  /** Zooms by a factor; the given point of the screen stays where it is. */
  zoomAt(factor: number, screenX = this.width / 2, screenY = this.height / 2): void {
    const fixed = this.toDrawing(screenX, screenY);
    this.zoom = Math.min(LARGEST, Math.max(SMALLEST, this.zoom * factor));
    this.x = fixed.x - screenX / this.zoom;
    this.y = fixed.y - screenY / this.zoom;
  }

  /** Shows all of `rect`, never larger than life, left of `covered` pixels. */
  fit(rect: Rect, covered = 0): void {
    const width = this.width - covered;
    const within = (margin: number): number =>
      Math.min(
        (width - margin) / Math.max(1, rect.width),
        (this.height - margin) / Math.max(1, rect.height),
        1,
      );
    this.zoom = Math.max(SMALLEST, readable(within(MARGIN), within(0)));
    this.x = rect.x + rect.width / 2 - width / 2 / this.zoom;
    this.y = rect.y + rect.height / 2 - this.height / 2 / this.zoom;
  }

  /**
   * The first look: everything where that can be read, else the top at a size that can, with the
   * trunk in the middle.
   */
  open(rect: Rect, axis: number): void {
    this.fit(rect);
    if (this.zoom < 0.9) this.#openTop(rect, axis);
  }

  /**
   * Keeps what reaches from `left` to `right` off `covered` pixels at the right; `move` may move it,
   * its left edge always in view. Returns whether they are free; nothing moves where they cannot be.
   */
  clear(left: number, right: number, covered: number, move: boolean): boolean {
    const over = (right - this.x) * this.zoom - (this.width - covered);
    const free = over <= (move ? Math.max(0, (left - this.x) * this.zoom - 16) : 0);
    if (free && over > 0) this.x += over / this.zoom;
    return free;
  }

  #openTop(rect: Rect, axis: number): void {
    // A side lane in view is worth more than the small print; half a drawing is worth neither.
    const width = Math.max(1, rect.width);
    const whole = readable((this.width - 16) / width, this.width / width);
    const zoom = Math.min(1, whole < STILL_NAMED ? 0.9 : whole);
    this.zoom = zoom;
    this.x = rect.x + rect.width / 2 - this.width / 2 / zoom;
    const spare = this.width / zoom - rect.width;
    // What is wider than the view has its trunk as near the middle as leaves no empty stripe.
    if (spare * zoom < 16) {
      const [left, right] = [rect.x - 8 / zoom, rect.x + rect.width + 8 / zoom];
      this.x = Math.max(left, Math.min(right - this.width / zoom, axis - this.width / 2 / zoom));
    }
    this.y = rect.y - 20 / zoom;
  }

  /** Moves as little as needed to bring `rect` into view; `covered` pixels at the right are hidden. */
  reveal(rect: Rect, margin = 40, covered = 0): void {
    const pad = margin / this.zoom;
    const view = this.view();
    view.width -= covered / this.zoom;
    if (rect.height + 2 * pad > view.height) this.y = rect.y - pad;
    else if (rect.y - pad < view.y) this.y = rect.y - pad;
    else if (rect.y + rect.height + pad > view.y + view.height)
      this.y = rect.y + rect.height + pad - view.height;
    // A drawing as wide as the view has no more than this beside it.
    const side = 8 / this.zoom;
    if (rect.width + 2 * side > view.width) this.x = rect.x + rect.width / 2 - view.width / 2;
    else if (rect.x - side < view.x) this.x = rect.x - side;
    else if (rect.x + rect.width + side > view.x + view.width)
      this.x = rect.x + rect.width + side - view.width;
  }
}
