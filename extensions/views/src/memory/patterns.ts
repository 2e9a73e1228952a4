/** Fills that distinguish states without colour: hatch, stripes, cross-hatch and dots. */
import type { Palette } from '../graph/theme';

export type Fill = CanvasPattern | string;

export interface Patterns {
  free: Fill;
  /** Free, but its segment holds live blocks and cannot be given back. */
  pinned: Fill;
  /** Is drawn over the colour of what waits for a stream. */
  pending: Fill;
  slack: Fill;
  rounding: Fill;
}

const TILE = 6;

/** The fills in the colours of a theme; made again when it changes or the pixels do. */
export function patternsOf(context: CanvasRenderingContext2D, palette: Palette): Patterns {
  const ratio = devicePixelRatio;
  const tile = (back: string | null, draw: (inner: CanvasRenderingContext2D) => void): Fill => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = Math.round(TILE * ratio);
    const inner = canvas.getContext('2d');
    if (!inner) return palette.hatchBack;
    inner.scale(canvas.width / TILE, canvas.height / TILE);
    if (back) {
      inner.fillStyle = back;
      inner.fillRect(0, 0, TILE, TILE);
    }
    inner.lineWidth = 1;
    draw(inner);
    const pattern = context.createPattern(canvas, 'repeat');
    pattern?.setTransform(new DOMMatrix().scale(TILE / canvas.width, TILE / canvas.height));
    return pattern ?? palette.hatchBack;
  };
  const lines = (inner: CanvasRenderingContext2D, colour: string, both: boolean): void => {
    inner.strokeStyle = colour;
    inner.beginPath();
    for (const shift of [-TILE, 0, TILE]) {
      inner.moveTo(shift, TILE);
      inner.lineTo(shift + TILE, 0);
      if (!both) continue;
      inner.moveTo(shift, 0);
      inner.lineTo(shift + TILE, TILE);
    }
    inner.stroke();
  };
  return {
    free: tile(palette.hatchBack, (inner) => lines(inner, palette.hatch, false)),
    pinned: tile(palette.hatchBack, (inner) => lines(inner, palette.stroke2, true)),
    pending: tile(null, (inner) => {
      inner.fillStyle = palette.canvas;
      inner.fillRect(0, 1, TILE, 1.25);
      inner.fillRect(0, 4, TILE, 1.25);
    }),
    slack: tile(palette.raise, (inner) => {
      inner.fillStyle = palette.ink;
      inner.fillRect(1, 1, 1.4, 1.4);
      inner.fillRect(4, 4, 1.4, 1.4);
    }),
    rounding: palette.ink,
  };
}
