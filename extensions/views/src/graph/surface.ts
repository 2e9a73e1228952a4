/** The canvas: draws on demand, and turns pointer and wheel into panning, zooming and picking. */
import { Camera, type Size } from './camera';
import { h, on } from './dom';
import type { Box } from './layout';
import { LEGEND_BUTTON } from './legend';
import { paint } from './paint';
import { pick, type Hit } from './pick';
import { reach } from './reach';
import type { Drawing } from './drawing';
import { isOperation } from './operations';
import { matching, type Palette } from './theme';

export interface SurfaceEvents {
  select: (box: Box | null) => void;
  toggle: (box: Box) => void;
  moved: () => void;
}

const CLICK = 4;
const DURATION_MS = 150;

export class Surface {
  readonly element: HTMLCanvasElement;
  readonly camera = new Camera();
  #state: Drawing | null = null;
  #palette: Palette | null = null;
  #hovered: Box | null = null;
  #frame = 0;
  #animation = 0;

  constructor(
    private readonly events: SurfaceEvents,
    label: string,
  ) {
    this.element = h('canvas', {
      class: 'wv-surface',
      tabindex: 0,
      role: 'application',
      'aria-label': label,
    });
    this.#listen();
  }

  /** What to draw, and in which colours. */
  use(state: Drawing | null, palette: Palette | null): void {
    this.#state = state;
    this.#palette = palette;
    this.#hovered = null;
    this.redraw();
  }

  resize(width: number, height: number): void {
    const { camera, element } = this;
    camera.width = Math.max(1, width);
    camera.height = Math.max(1, height);
    element.width = Math.round(camera.width * devicePixelRatio);
    element.height = Math.round(camera.height * devicePixelRatio);
    this.#draw();
  }

  /** Draws at the next animation frame. */
  redraw(): void {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  dispose(): void {
    cancelAnimationFrame(this.#frame);
    cancelAnimationFrame(this.#animation);
  }

  /** Moves the camera over 150 ms, or at once where motion is not wanted. */
  animate(change: (camera: Camera) => void): void {
    const { camera } = this;
    const start = { ...camera };
    change(camera);
    const end = { ...camera };
    cancelAnimationFrame(this.#animation);
    const still = matching('(prefers-reduced-motion: reduce)')?.matches ?? true;
    if (still) {
      this.#moved();
      return;
    }
    const began = performance.now();
    const tick = (now: number): void => {
      const part = Math.min(1, (now - began) / DURATION_MS);
      const ease = 1 - (1 - part) ** 3;
      camera.zoom = start.zoom * (end.zoom / start.zoom) ** ease;
      camera.x = start.x + (end.x - start.x) * ease;
      camera.y = start.y + (end.y - start.y) * ease;
      this.#moved();
      if (part < 1) this.#animation = requestAnimationFrame(tick);
    };
    Object.assign(camera, start);
    this.#animation = requestAnimationFrame(tick);
  }

  /** The first look at a drawing; returns whether it leaves the place of a legend free. */
  open(legend: Size | null): boolean {
    const root = this.#state?.layout.root;
    if (!root) return true;
    const { camera } = this;
    camera.open(root, root.axis);
    const free = legend !== null && this.clear(legend);
    // Closed it is a button, and nothing is under that either.
    if (!free && !this.clear(LEGEND_BUTTON)) camera.y = root.y - 40 / camera.zoom;
    this.redraw();
    return free;
  }

  /** Whether so many pixels at the top right are free of the drawing, which may move for them. */
  clear({ width, height }: Size, move = true): boolean {
    const root = this.#state?.layout.root;
    if (!root) return true;
    const { camera } = this;
    const right = reach(root, camera.y, camera.y + height / camera.zoom);
    return camera.clear(root.x, right, width, move);
  }

  /**
   * Shows the whole drawing, beside the `covered` pixels of an inspector that is over it (behind
   * it where that leaves less than half), and beside those of an open legend where it must.
   */
  fit(covered: number, legend: { readonly reserved: number; readonly place: Size }): void {
    const root = this.#state?.layout.root;
    if (root)
      this.animate((camera) => {
        camera.fit(root, 2 * covered < camera.width ? covered : 0);
        const { reserved, place } = legend;
        if (reserved > covered && !this.clear(place)) camera.fit(root, reserved);
      });
  }

  /** What was clicked stays under the pointer when it opens or closes. */
  follow(before: Box | undefined, after: Box | undefined): void {
    if (!before || !after) return;
    this.camera.x += after.axis - before.axis;
    this.camera.y += after.y - before.y;
  }

  /** Brings a point of the drawing to the middle. */
  centre(x: number, y: number): void {
    const { camera } = this;
    camera.x = x - camera.width / camera.zoom / 2;
    camera.y = y - camera.height / camera.zoom / 2;
    this.#moved();
  }

  /** Moves to a box out of view, or under `covered` pixels at the right; `over` counts them then. */
  show(box: Box, reveal: boolean, covered: number, over: () => number): void {
    const { camera } = this;
    const { x, width } = box.node;
    const hidden = (x + width - camera.x) * camera.zoom + 16 - (camera.width - covered);
    if (!reveal && (covered === 0 || hidden <= 0 || box.open)) return;
    this.animate((view) => {
      if (!reveal) return view.pan(-hidden, 0);
      if (view.zoom < 0.6) view.zoomAt(0.9 / view.zoom);
      const rect = { x, y: box.y, width, height: box.height };
      view.reveal(rect, 40, covered);
      view.reveal(rect, 40, Math.max(covered, over()));
    });
  }

  #moved(): void {
    this.events.moved();
    this.redraw();
  }

  #draw(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const context = this.element.getContext('2d');
    if (!context || !this.#state || !this.#palette) return;
    const ratio = this.element.width / this.camera.width;
    paint(context, this.camera, this.#palette, this.#state, this.#hovered, ratio);
  }

  #at(event: MouseEvent): { x: number; y: number; screenX: number; screenY: number } {
    const box = this.element.getBoundingClientRect();
    const screenX = event.clientX - box.left;
    const screenY = event.clientY - box.top;
    return { ...this.camera.toDrawing(screenX, screenY), screenX, screenY };
  }

  #listen(): void {
    const { element } = this;
    let down: { x: number; y: number; moved: boolean } | null = null;
    on(element, 'pointerdown', (event) => {
      if (event.button !== 0 && event.button !== 1) return;
      cancelAnimationFrame(this.#animation);
      down = { x: event.clientX, y: event.clientY, moved: false };
      element.setPointerCapture?.(event.pointerId);
    });
    on(element, 'pointermove', (event) => {
      if (!down) {
        this.#setHovered(this.#hit(event)?.box ?? null);
        return;
      }
      const dx = event.clientX - down.x;
      const dy = event.clientY - down.y;
      if (!down.moved && Math.hypot(dx, dy) < CLICK) return;
      down = { x: event.clientX, y: event.clientY, moved: true };
      element.classList.add('grabbing');
      this.camera.pan(dx, dy);
      this.#moved();
    });
    on(element, 'pointerup', (event) => {
      const click = down && !down.moved;
      down = null;
      element.classList.remove('grabbing');
      if (click && this.#state) this.#click(event);
    });
    on(element, 'pointercancel', () => (down = null));
    on(element, 'pointerleave', () => this.#setHovered(null));
    on(element, 'dblclick', (event) => {
      const hit = this.#hit(event);
      if (hit && !isOperation(hit.box.item) && !hit.handle) this.events.toggle(hit.box);
    });
    on(element, 'wheel', (event) => this.#wheel(event));
  }

  #click(event: PointerEvent): void {
    const hit = this.#hit(event);
    if (hit?.handle) this.events.toggle(hit.box);
    else this.events.select(hit?.box ?? null);
  }

  #hit(event: MouseEvent): Hit | null {
    const { x, y } = this.#at(event);
    return this.#state && pick(this.#state.layout.root, x, y);
  }

  #setHovered(box: Box | null): void {
    if (this.#hovered === box) return;
    this.#hovered = box;
    this.element.classList.toggle('pointing', box !== null);
    this.redraw();
  }

  /**
   * Ctrl or a pinch zooms. A plain wheel pans in a tab, and where a person has pressed into the
   * drawing; else it is the notebook's around it, which scrolls past. Amounts are in pixels: browsers
   * count in lines only where a page is the unit.
   */
  #wheel(event: WheelEvent): void {
    const { camera, element } = this;
    const { deltaX, deltaY, shiftKey } = event;
    const zooms = event.ctrlKey || event.metaKey;
    const isOurs = zooms || element.matches(':focus,.jp-Workbench-document *');
    if (!this.#state || !isOurs) return;
    event.preventDefault();
    cancelAnimationFrame(this.#animation);
    if (zooms) {
      const { screenX, screenY } = this.#at(event);
      camera.zoomAt(Math.exp(-deltaY * 0.004), screenX, screenY);
    } else if (shiftKey) camera.pan(-deltaY, 0);
    else camera.pan(-deltaX, -deltaY);
    this.#moved();
  }
}
