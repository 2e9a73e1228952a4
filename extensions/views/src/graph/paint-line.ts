/** Draws a piece of an edge: rounded corners, its width by its bytes, an arrowhead where it ends. */
import type { Line } from './layout';
import type { Scene } from './paint';

const CORNER = 12;

export function paintLine(scene: Scene, line: Line, colour: string, head: string): void {
  const { context, state, pixel, view, detail } = scene;
  const { points } = line;
  const width = state.widthOf(line.bytes);
  if (line.soft && detail !== 'all' && detail !== 'name') return;
  if (width < pixel * 0.25 || points.length < 4) return;
  const last = points.length - 2;
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let at = 0; at < points.length; at += 2) {
    left = Math.min(left, points[at]);
    right = Math.max(right, points[at]);
    top = Math.min(top, points[at + 1]);
    bottom = Math.max(bottom, points[at + 1]);
  }
  if (left > view.x + view.width + 12 || right < view.x - 12) return;
  if (top > view.y + view.height + 12 || bottom < view.y - 12) return;
  const [endX, endY] = [points[last], points[last + 1]];
  const [beforeX, beforeY] = [points[last - 2], points[last - 1]];
  const arrow = line.arrow && detail !== 'box';
  const size = arrow ? Math.min(7, Math.max(5, width * 0.9)) : 0;
  const dx = Math.sign(endX - beforeX);
  const dy = Math.sign(endY - beforeY);
  context.strokeStyle = line.soft && colour === scene.palette.flow ? head : colour;
  context.lineWidth = Math.max(width, pixel * 0.75);
  context.beginPath();
  context.moveTo(points[0], points[1]);
  for (let at = 2; at < last; at += 2) {
    const radius = Math.min(CORNER, reach(points, at - 2), reach(points, at));
    context.arcTo(points[at], points[at + 1], points[at + 2], points[at + 3], radius);
  }
  context.lineTo(endX - dx * size, endY - dy * size);
  if (line.soft) context.setLineDash([2, 4]);
  context.stroke();
  if (line.soft) context.setLineDash([]);
  if (!arrow) return;
  const half = Math.max(4, width * 0.5 + 2);
  context.fillStyle = head;
  context.beginPath();
  context.moveTo(endX, endY);
  context.lineTo(endX - dx * size - dy * half, endY - dy * size - dx * half);
  context.lineTo(endX - dx * size + dy * half, endY - dy * size + dx * half);
  context.fill();
}

/** Half the length of the segment that starts at point `at`. */
function reach(points: readonly number[], at: number): number {
  const dx = points[at + 2] - points[at];
  const dy = points[at + 3] - points[at + 1];
  return (Math.abs(dx) + Math.abs(dy)) / 2;
}
