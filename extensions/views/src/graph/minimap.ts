/** The whole drawing, small, with the part in view; a click or drag moves there. */
import type { Camera } from './camera';
import { h, on } from './dom';
import type { Box } from './layout';
import type { Drawing } from './drawing';
import type { Palette } from './theme';

const WIDTH = 160;
const HEIGHT = 120;

export interface Minimap {
  element: HTMLCanvasElement;
  draw: (state: Drawing | null, camera: Camera, palette: Palette | null) => void;
}

/** Makes the map; `onMove` gets the drawing point that should come to the middle. */
export function minimap(onMove: (x: number, y: number) => void): Minimap {
  const element = h('canvas', { class: 'wv-map', 'aria-hidden': 'true' });
  let scale = 1;
  let shiftX = 0;
  let shiftY = 0;
  let drawn: unknown = null;
  const image = document.createElement('canvas');
  const move = (event: PointerEvent): void => {
    const box = element.getBoundingClientRect();
    onMove((event.clientX - box.left - shiftX) / scale, (event.clientY - box.top - shiftY) / scale);
  };
  on(element, 'pointerdown', (event) => {
    element.setPointerCapture(event.pointerId);
    move(event);
  });
  on(element, 'pointermove', (event) => {
    if (event.buttons & 1) move(event);
  });
  const draw = (state: Drawing | null, camera: Camera, palette: Palette | null): void => {
    element.hidden = !state;
    if (!state || !palette) return;
    const { root } = state.layout;
    const view = camera.view();
    const whole = view.width >= root.width && view.height >= root.height;
    // A short panel needs its height for the modules.
    element.hidden = whole || camera.height < 600;
    if (element.hidden) return;
    const ratio = devicePixelRatio;
    const key = `${palette.canvas}${ratio}`;
    if (drawn !== state.layout || image.dataset['key'] !== key) {
      drawn = state.layout;
      image.dataset['key'] = key;
      scale = Math.min((WIDTH - 12) / root.width, (HEIGHT - 12) / root.height);
      shiftX = (WIDTH - root.width * scale) / 2 - root.x * scale;
      shiftY = (HEIGHT - root.height * scale) / 2 - root.y * scale;
      for (const canvas of [image, element]) {
        canvas.width = WIDTH * ratio;
        canvas.height = HEIGHT * ratio;
      }
      element.style.width = `${WIDTH}px`;
      element.style.height = `${HEIGHT}px`;
      const context = image.getContext('2d');
      if (context) paintAll(context, state, palette, ratio, scale, shiftX, shiftY);
    }
    const context = element.getContext('2d');
    if (!context) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, element.width, element.height);
    context.drawImage(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.strokeStyle = palette.select;
    context.lineWidth = 1.5;
    const left = Math.max(1, view.x * scale + shiftX);
    const top = Math.max(1, view.y * scale + shiftY);
    const right = Math.min(WIDTH - 1, (view.x + view.width) * scale + shiftX);
    const bottom = Math.min(HEIGHT - 1, (view.y + view.height) * scale + shiftY);
    context.strokeRect(left, top, Math.max(3, right - left), Math.max(3, bottom - top));
  };
  return { element, draw };
}

function paintAll(
  context: CanvasRenderingContext2D,
  state: Drawing,
  palette: Palette,
  ratio: number,
  scale: number,
  shiftX: number,
  shiftY: number,
): void {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const walk = (box: Box): void => {
    const width = Math.max(1, box.node.width * scale);
    const height = Math.max(0.75, box.height * scale);
    if (box.parent) {
      context.fillStyle = box.open
        ? palette.level[1]
        : (state.speck?.(box.item, palette) ?? palette.stroke2);
      context.fillRect(box.node.x * scale + shiftX, box.y * scale + shiftY, width, height);
    }
    // Below a pixel a box's content cannot be seen.
    if (height >= 1.5 || !box.parent) for (const child of box.children) walk(child);
  };
  walk(state.layout.root);
}
