/** Brings what was lit into view: all of it where there is room, else half of it where that can be. */
import { STILL_NAMED, type Camera, type Rect } from './camera';

/** Pixels free above and below. */
const MARGIN = 40;
const LEAST_ROOM = 200;

/**
 * Moves only where less than half of `rects` is in view, left of `covered` pixels, and zooms out no
 * further than the first look at a drawing does. Of a path too long for that it shows the end that
 * it was requested from. Returns whether it moved.
 */
export function gather(camera: Camera, rects: readonly Rect[], covered: number): boolean {
  const view = camera.view();
  view.width -= covered / camera.zoom;
  const seen = rects.filter((rect) => holds(view, rect));
  if (seen.length * 2 >= rects.length) return false;
  const { zoom } = camera;
  const room = Math.max(LEAST_ROOM, camera.height - 2 * MARGIN);
  let shown = around(rects);
  const bottom = shown.y + shown.height;
  if (shown.height * zoom > room) shown = tightest(rects, Math.ceil(rects.length / 2));
  if (shown.height * Math.min(zoom, STILL_NAMED) > room)
    shown = around(rects.filter(({ y }) => (bottom - y) * zoom < room));
  camera.zoomAt(Math.min(1, room / shown.height / zoom));
  camera.reveal(shown, MARGIN, covered);
  return true;
}

function holds(view: Rect, rect: Rect): boolean {
  const joined = around([view, rect]);
  return joined.width < view.width + 1 && joined.height < view.height + 1;
}

/** What is around those `count` neighbours, from top to bottom, that need the least height; the last such. */
function tightest(rects: readonly Rect[], count: number): Rect {
  const sorted = [...rects].sort((a, b) => a.y - b.y);
  return sorted
    .slice(count - 1)
    .map((_, at) => around(sorted.slice(at, at + count)))
    .reduce((best, one) => (one.height <= best.height ? one : best));
}

function around(rects: readonly Rect[]): Rect {
  const x = Math.min(...rects.map((one) => one.x));
  const y = Math.min(...rects.map((one) => one.y));
  const right = Math.max(...rects.map((one) => one.x + one.width));
  const bottom = Math.max(...rects.map((one) => one.y + one.height));
  return { x, y, width: right - x, height: bottom - y };
}
