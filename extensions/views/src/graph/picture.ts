/**
 * A picture of what a graph view shows, as SVG or PNG: the same drawing code with another pen, and
 * the legend over it where it is open. What is outside the view is not in the picture.
 */
import type { Camera } from './camera';
import type { Drawing } from './drawing';
import { paint } from './paint';
import type { Pen } from './pen';
import { paintLegend } from './picture-legend';
import { SvgPen } from './picture-svg';
import type { Palette } from './theme';

/** What is drawn, from where and in which colours, and the legend over it. */
export interface Shown {
  readonly state: Drawing;
  readonly palette: Palette;
  readonly camera: Camera;
  readonly legend: HTMLDetailsElement;
}

/** Pixels of a PNG per pixel of the page: sharp on paper and on any screen. */
const PNG_SCALE = 2;

/** The picture as one SVG document, its text as text. */
export function svgOf(shown: Shown): string {
  const { width, height } = shown.camera;
  const { context } = canvas(1, 1);
  const pen = new SvgPen({ width, height, title: shown.state.record.title }, context);
  draw(pen, shown, 1);
  return pen.document();
}

/** The picture as a PNG. Rejects when it is larger than this browser can encode. */
export async function pngOf(shown: Shown): Promise<Blob> {
  const width = Math.round(shown.camera.width * PNG_SCALE);
  const height = Math.round(shown.camera.height * PNG_SCALE);
  const { element, context } = canvas(width, height);
  draw(context, shown, PNG_SCALE);
  const blob = await new Promise<Blob | null>((done) => element.toBlob(done, 'image/png'));
  if (blob) return blob;
  throw new Error(`This browser cannot encode a picture of ${width} × ${height} pixels.`);
}

function draw(pen: Pen, { state, palette, camera, legend }: Shown, scale: number): void {
  paint(pen, camera, palette, state, null, scale);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  if (legend.open && !legend.hidden) paintLegend(pen, legend, palette);
}

function canvas(
  width: number,
  height: number,
): { element: HTMLCanvasElement; context: CanvasRenderingContext2D } {
  const element = Object.assign(document.createElement('canvas'), { width, height });
  const context = element.getContext('2d');
  if (!context) throw new Error('This browser has no canvas to draw a picture on.');
  return { element, context };
}
