/** Where the drawing is looked at from. */

export const SMALLEST = 0.01;
export const LARGEST = 3;

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

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

  /** Shows all of `rect`, never larger than life. */
  fit(rect: Rect, margin = 24): void {
    const zoom = Math.min(
      (this.width - 2 * margin) / Math.max(1, rect.width),
      (this.height - 2 * margin) / Math.max(1, rect.height),
      1,
    );
    this.zoom = Math.max(SMALLEST, zoom);
    this.x = rect.x + rect.width / 2 - this.width / 2 / this.zoom;
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
   * Moves the drawing left so far that `covered` pixels at the right stay free, its left edge
   * always in view; returns whether they are.
   */
  clear(rect: Rect, covered: number): boolean {
    const over = (rect.x + rect.width - this.x) * this.zoom - (this.width - covered);
    const spare = (rect.x - this.x) * this.zoom - 16;
    if (over > 0 && spare > 0) this.x += Math.min(over, spare) / this.zoom;
    return over <= Math.max(0, spare);
  }

  #openTop(rect: Rect, axis: number): void {
    const zoom = Math.min(1, Math.max(0.9, (this.width - 48) / Math.max(1, rect.width)));
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
    if (rect.width + 2 * pad > view.width) this.x = rect.x + rect.width / 2 - view.width / 2;
    else if (rect.x - pad < view.x) this.x = rect.x - pad;
    else if (rect.x + rect.width + pad > view.x + view.width)
      this.x = rect.x + rect.width + pad - view.width;
  }
}
