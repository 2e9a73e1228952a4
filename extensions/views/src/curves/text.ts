/** Width of a label in pixels: measured on a canvas, guessed where there is none (tests). */
export function textWidth(text: string, size: number, weight: 400 | 600, family: string): number {
  const context = canvas();
  if (!context) return text.length * size * 0.56;
  context.font = `${weight} ${size}px ${family}`;
  return context.measureText(text).width;
}

let shared: CanvasRenderingContext2D | null | undefined;

function canvas(): CanvasRenderingContext2D | null {
  if (shared === undefined) {
    const hasCanvas = 'OffscreenCanvas' in globalThis;
    shared = hasCanvas ? document.createElement('canvas').getContext('2d') : null;
  }
  return shared;
}

/** `text`, shortened with an ellipsis until it fits; null when not even a few letters would. */
export function fitted(
  text: string,
  room: number,
  measure: (text: string) => number,
): string | null {
  if (measure(text) <= room) return text;
  for (let length = Math.min(text.length - 1, 60); length >= 4; length -= 1) {
    const shortened = `${text.slice(0, length).trimEnd()}…`;
    if (measure(shortened) <= room) return shortened;
  }
  return null;
}
