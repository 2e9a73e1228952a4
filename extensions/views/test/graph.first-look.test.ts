import { beforeEach, describe, expect, it } from 'vitest';
import { Camera } from '../src/graph/camera';
import { FirstLook } from '../src/graph/first-look';
import { GraphState } from '../src/graph/state';
import { Surface } from '../src/graph/surface';
import { graphOf, residual } from './graph-data';

HTMLCanvasElement.prototype.getContext = () => null;

describe('the first look at a graph', () => {
  const state = new GraphState(graphOf(residual(2)));
  const { root } = state.layout;
  let surface: Surface;
  let legend: HTMLDetailsElement;
  let look: FirstLook;
  const sized = (width: number): void => {
    surface.resize(width, 2000);
    look.choose();
  };
  /** Empty pixels left and right of the drawing. */
  const margins = (): number[] => {
    const { x, zoom, width } = surface.camera;
    const right = width - (root.x + root.width - x) * zoom;
    return [(root.x - x) * zoom, right].map(Math.round);
  };

  beforeEach(() => {
    surface = new Surface(
      { select: () => {}, toggle: () => {}, moved: () => look.take() },
      'Graph',
    );
    legend = document.createElement('details');
    look = new FirstLook(surface, legend, () => surface.camera.width > 860);
    surface.use(state, null);
    look.begin();
  });

  it('is chosen again while the page is being laid out', () => {
    for (const width of [3, 300, 1400]) sized(width);
    const [left, right] = margins();
    expect(left).toBe(right);
    expect(legend.open).toBe(true);
    sized(root.width + 60);
    expect(margins()).toEqual([30, 30]);
    expect(legend.open).toBe(false);
  });

  it('stays once a person has moved the drawing or pressed the legend', () => {
    sized(1400);
    surface.centre(0, 0);
    const { x, y } = surface.camera;
    sized(700);
    expect([surface.camera.x, surface.camera.y]).toEqual([x, y]);
    look.begin();
    legend.click();
    const before = surface.camera.x;
    sized(1000);
    expect(surface.camera.x).toBe(before);
  });

  it('never leaves the legend over a drawing that became narrow, unless it was pressed', () => {
    sized(1400);
    look.take();
    sized(700);
    expect(legend.open).toBe(false);
    legend.click();
    legend.open = true;
    sized(600);
    expect(legend.open).toBe(true);
  });
});

describe('the camera', () => {
  it('leaves no empty stripe beside a drawing that is wider than the view', () => {
    const camera = new Camera();
    Object.assign(camera, { width: 700, height: 600 });
    // the trunk a quarter from the left: in the middle it would cut the right for nothing
    camera.open({ x: -200, y: 0, width: 800, height: 3000 }, 0);
    expect(camera.zoom).toBe(0.9);
    expect((camera.x + 200) * camera.zoom).toBeCloseTo(-8);
    camera.open({ x: -200, y: 0, width: 760, height: 3000 }, 0);
    const { x, width } = camera.view();
    expect(-200 - x).toBeCloseTo(x + width - 560);
  });
});
