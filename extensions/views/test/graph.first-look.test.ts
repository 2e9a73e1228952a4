import { beforeEach, describe, expect, it } from 'vitest';
import { Camera } from '../src/graph/camera';
import { FirstLook } from '../src/graph/first-look';
import { LEGEND } from '../src/graph/legend';
import { reach } from '../src/graph/reach';
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

describe('the place of the open legend', () => {
  // A skip around everything: its lane is what reaches farthest right.
  const skip = [{ op: 'relu' }, { op: 'conv', inputs: [0] }, { op: 'add', inputs: [1, 0] }];
  const laid = (
    width: number,
  ): { surface: Surface; legend: HTMLDetailsElement; look: FirstLook } => {
    const surface = new Surface({ select: () => {}, toggle: () => {}, moved: () => {} }, 'Graph');
    const legend = document.createElement('details');
    const look = new FirstLook(surface, legend, () => true);
    surface.resize(width, 260);
    surface.use(new GraphState(graphOf(skip)), null);
    return { surface, legend, look };
  };
  const { root } = new GraphState(graphOf(skip)).layout;
  /** Pixels of the view's right that the drawing does not reach. */
  const free = ({ camera }: Surface): number =>
    camera.width - (reach(root, 0, root.height) - camera.x) * camera.zoom;

  it('is measured by lines as well as by boxes', () => {
    const boxes = Math.max(...root.children.map(({ x, width }) => x + width));
    expect(reach(root, 0, root.height)).toBeGreaterThan(boxes);
    expect(reach(root, -50, -10)).toBe(-Infinity);
  });

  it('is left free at first and by Fit where there is room, at the size there is', () => {
    const { surface, legend, look } = laid(Math.ceil(root.width) + 330);
    look.begin();
    expect(legend.open).toBe(true);
    expect(free(surface)).toBeGreaterThanOrEqual(LEGEND.width);
    surface.resize(root.width + 40, 260);
    surface.fit(0, look);
    expect(surface.camera.zoom).toBeLessThan(1);
    expect(free(surface)).toBeGreaterThanOrEqual(LEGEND.width);
  });

  it('gives way to an inspector over the drawing, which Fit keeps beside it', () => {
    const { surface, look } = laid(root.width + 400);
    look.begin();
    surface.resize(root.width + 400, 260);
    surface.fit(304, look);
    expect(free(surface)).toBeGreaterThanOrEqual(304);
    // it would leave too little of a narrow view: the drawing is behind it there
    surface.resize(500, 260);
    surface.fit(304, { ...look, reserved: 0, place: look.place });
    expect(free(surface)).toBeLessThan(304);
  });

  it('is given way to by what is shown, else the legend closes, unless it was pressed', () => {
    const wide = laid(root.width + 700);
    wide.look.begin();
    wide.surface.camera.x -= 200;
    wide.look.giveWay(true);
    expect([wide.legend.open, free(wide.surface)]).toEqual([true, LEGEND.width]);
    const narrow = laid(root.width + 700);
    narrow.look.begin();
    narrow.surface.resize(root.width + 100, 260);
    narrow.look.giveWay(true);
    expect(narrow.legend.open).toBe(false);
    narrow.legend.click();
    narrow.legend.open = true;
    narrow.look.giveWay(true);
    expect(narrow.legend.open).toBe(true);
  });

  it('is as high as the legend, which closes where another colouring needs more lines', () => {
    const { surface, legend, look } = laid(root.width + 40);
    const lines = (height: number): boolean => {
      Object.defineProperty(legend, 'offsetHeight', { value: height, configurable: true });
      look.filled();
      return legend.open;
    };
    surface.resize(root.width + 40, 900);
    const top = (900 - root.height) / 2;
    look.begin();
    look.take();
    expect(look.place.height).toBe(LEGEND.height);
    expect(lines(top - 30)).toBe(true);
    expect(look.place.height).toBe(top - 6);
    expect(lines(top + 60)).toBe(false);
  });

  it('is not a reason to move what a person opens under the pointer', () => {
    const { surface, legend, look } = laid(root.width + 700);
    look.begin();
    surface.camera.x -= 200;
    const { x } = surface.camera;
    look.giveWay(false);
    expect([legend.open, surface.camera.x]).toEqual([false, x]);
  });
});

describe('the camera', () => {
  it('leaves no empty stripe beside a drawing that is wider than the view', () => {
    const camera = new Camera();
    Object.assign(camera, { width: 700, height: 600 });
    // the trunk a quarter from the left: in the middle it would cut the right for nothing
    camera.open({ x: -200, y: 0, width: 1000, height: 3000 }, 0);
    expect(camera.zoom).toBe(0.9);
    expect((camera.x + 200) * camera.zoom).toBeCloseTo(-8);
    camera.open({ x: -200, y: 0, width: 760, height: 3000 }, 0);
    const { x, width } = camera.view();
    expect(-200 - x).toBeCloseTo(x + width - 560);
  });

  it('takes the size that keeps all text where that costs nothing but margin', () => {
    const camera = new Camera();
    Object.assign(camera, { width: 1000, height: 3000 });
    const rect = (width: number, height = 3000) => ({ x: 0, y: 0, width, height });
    for (const width of [1165, 1172, 1176]) {
      camera.open(rect(width), 0);
      expect([camera.zoom, camera.view().width >= width]).toEqual([0.85, true]);
    }
    camera.open(rect(1180), 0);
    expect(camera.zoom).toBeCloseTo(984 / 1180);
    camera.fit(rect(1150, 900));
    expect(camera.zoom).toBe(0.85);
    camera.fit(rect(1600, 900));
    expect(camera.zoom).toBe(0.6);
    camera.fit(rect(1200, 900));
    expect(camera.zoom).toBeCloseTo(952 / 1200);
    camera.fit(rect(1150, 900), 100);
    expect(camera.zoom).toBeCloseTo(852 / 1150);
  });

  it('opens on the whole width, side lanes and all, while names can be read', () => {
    const camera = new Camera();
    Object.assign(camera, { width: 700, height: 600 });
    const rect = { x: -200, y: 0, width: 800, height: 3000 };
    camera.open(rect, 0);
    expect(camera.zoom).toBeCloseTo(0.855);
    expect((rect.x - camera.x) * camera.zoom).toBeCloseTo(8);
    expect((rect.x + rect.width - camera.x) * camera.zoom).toBeCloseTo(692);
  });
});
