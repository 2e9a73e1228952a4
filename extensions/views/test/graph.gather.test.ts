import { describe, expect, it } from 'vitest';
import { Camera, STILL_NAMED } from '../src/graph/camera';
import { gather } from '../src/graph/gather';

/** Boxes of 100 × 40 at these heights. */
const boxes = (...tops: number[]) => tops.map((y) => ({ x: 0, y, width: 100, height: 40 }));

function look(zoom = 1): Camera {
  return Object.assign(new Camera(), { x: -100, y: 0, zoom, width: 400, height: 600 });
}

function seen({ x, y, zoom, width, height }: Camera, tops: readonly number[]): number {
  const inView = (top: number) => top >= y && top + 40 <= y + height / zoom;
  return x <= 0 && x + width / zoom >= 100 ? tops.filter(inView).length : 0;
}

describe('what was lit', () => {
  it('moves nothing where half of it is in view', () => {
    const camera = look();
    expect(gather(camera, boxes(10, 100, 2000, 3000), 0)).toBe(false);
    expect(gather(camera, [], 0)).toBe(false);
    expect([camera.x, camera.y, camera.zoom]).toEqual([-100, 0, 1]);
  });

  it('comes into view as a whole where there is room, at the size there is', () => {
    const [camera, tops] = [look(), [2000, 2200, 2400]];
    expect(gather(camera, boxes(...tops), 0)).toBe(true);
    expect([seen(camera, tops), camera.zoom]).toEqual([3, 1]);
  });

  it('comes into view by the half that needs least room, farther out no more than must be', () => {
    const [camera, tops] = [look(), [0, 1000, 2000, 2600, 2700, 3000]];
    camera.y = 5000;
    gather(camera, boxes(...tops), 0);
    expect([seen(camera, tops), camera.zoom]).toEqual([3, 1]);
    const [other, wide] = [look(), [1000, 1600, 4000, 4640]];
    gather(other, boxes(...wide), 0);
    expect(seen(other, wide)).toBe(2);
    expect(other.zoom).toBeCloseTo(520 / 640);
  });

  it('never goes farther out than names can be read: then its end is shown as it is', () => {
    for (const zoom of [1, 0.5]) {
      const camera = look(zoom);
      gather(camera, boxes(5000, 9000, 13000, 16000, 19000, 19100), 0);
      expect(camera.zoom).toBe(zoom);
      expect(seen(camera, [19000, 19100])).toBe(2);
    }
    const [near, high] = [look(0.9), [0, 300, 600, 5000, 6000]];
    near.y = 9000;
    gather(near, boxes(...high), 0);
    expect(near.zoom).toBeGreaterThanOrEqual(STILL_NAMED);
    expect(seen(near, high)).toBe(3);
  });

  it('is never lost in a view of no height', () => {
    const camera = look(3);
    Object.assign(camera, { height: 1 });
    gather(camera, boxes(1000, 5000, 9000), 0);
    expect([camera.x, camera.y, camera.zoom].every(Number.isFinite)).toBe(true);
  });

  it('comes out from under the panel at the right', () => {
    const camera = look();
    camera.x = -250;
    expect(gather(camera, boxes(10, 100), 100)).toBe(true);
    expect(camera.x + camera.width - 100).toBeGreaterThanOrEqual(100);
  });
});
