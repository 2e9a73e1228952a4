import { s, setAttr, setShown } from '../dom';
import type { Curve } from '../kernel';
import { linePath } from './path';
import { linear } from './scale';
import { valueRange } from './range';

const WIDTH = 76;
const HEIGHT = 24;

/** A loss curve the size of a word, for lists. Decoration: the words beside it carry the state. */
export class Sparkline {
  readonly svg = s('svg', { class: 'wb-spark', width: WIDTH, height: HEIGHT });
  private readonly path = s('path');
  private readonly dot = s('circle', { r: 2 });
  private drawn = '';

  constructor() {
    setAttr(this.svg, 'viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
    setAttr(this.svg, 'aria-hidden', 'true');
    const base = { x1: 2, x2: WIDTH - 2, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: 'grid' };
    this.svg.append(s('line', base), this.path, this.dot);
  }

  /**
   * `totalSteps` is the right edge: a run under way leaves the rest of the width empty, though not
   * more than two thirds of it.
   */
  draw(curve: Curve | undefined, totalSteps: number, live: boolean): void {
    const last = curve?.steps[curve.length - 1] ?? 0;
    const key = `${curve?.length}|${last}|${totalSteps}|${live}`;
    if (key === this.drawn) return;
    this.drawn = key;
    setAttr(this.svg, 'class', live ? 'wb-spark is-live' : 'wb-spark');
    const smooth = curve?.smooth ?? new Float32Array(0);
    const range = valueRange(undefined, [curve && { ...curve, values: smooth }]);
    // A line needs two points: the first one is drawn as the dot.
    setShown(this.dot, (live || curve?.length === 1) && range !== null);
    if (!curve || !range) return setAttr(this.path, 'd', '');
    const edge = Math.max(Math.min(totalSteps, 3 * last), last, 1);
    const x = linear(0, edge, 2, WIDTH - 4);
    const y = linear(range.low, range.high, HEIGHT - 3, 2);
    setAttr(this.path, 'd', linePath(curve.steps, smooth, curve.length, x, y));
    setAttr(this.dot, 'cx', x(last).toFixed(1));
    setAttr(this.dot, 'cy', y(smooth[curve.length - 1] as number).toFixed(1));
  }
}
