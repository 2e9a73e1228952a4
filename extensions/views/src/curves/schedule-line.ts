import type { ScheduleState } from '@torch-workbench/records';
import { s, setAttr, setShown } from '../dom';
import { learningRate } from '../format';
import { linear, type Scale } from './scale';

const WIDTH = 160;
const HEIGHT = 32;

/** The rates to come of a schedule, and where the run is among them. */
export class ScheduleLine {
  readonly svg = s('svg', { class: 'wb-schedule-line', width: WIDTH, height: HEIGHT, role: 'img' });
  private readonly band = s('path', { class: 'band', d: '' });
  private readonly line = s('path', { class: 'line', d: '' });
  private readonly now = s('line', { class: 'now', y1: 1, y2: HEIGHT - 1 });
  private readonly dot = s('circle', { r: 2.5 });
  private drawn = '';
  private x: Scale = linear(0, 1, 2, WIDTH - 2);
  private y: Scale = linear(0, 1, HEIGHT - 2, 4);

  constructor() {
    setAttr(this.svg, 'viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
    const base = { x1: 2, x2: WIDTH - 2, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: 'grid' };
    this.svg.append(s('line', base), this.band, this.line, this.now, this.dot);
  }

  /** `at`: steps (or epochs) done; `rate`: of the next step. */
  draw(schedule: ScheduleState, at: number, rate: number | null): void {
    const { start, end, size, low, high } = schedule;
    setShown(this.svg, low.length > 0);
    if (low.length === 0) return;
    const key = JSON.stringify([start, end, size, low, high]);
    if (key !== this.drawn) {
      this.drawn = key;
      this.x = linear(start, end, 2, WIDTH - 2);
      this.y = linear(0, Math.max(...high) || 1, HEIGHT - 2, 4);
      const isBand = high.some((value, i) => value !== low[i]);
      const top = this.stairs(schedule, high);
      const back = isBand ? this.stairs(schedule, low).reverse() : [];
      setAttr(this.line, 'd', path(top));
      setAttr(this.band, 'd', isBand ? `${path([...top, ...back])}Z` : '');
      setAttr(this.svg, 'aria-label', described(schedule));
    }
    const inside = at >= start && at <= end;
    for (const mark of [this.now, this.dot]) setShown(mark, inside);
    if (!inside) return;
    const x = this.x(at).toFixed(1);
    setAttr(this.now, 'x1', x);
    setAttr(this.now, 'x2', x);
    setAttr(this.dot, 'cx', x);
    const value = rate ?? low[Math.min(low.length - 1, Math.floor((at - start) / size))] ?? 0;
    setAttr(this.dot, 'cy', Math.max(2.5, this.y(value)).toFixed(1));
  }

  /** A rate holds until the scheduler steps: two points each, so that a fall is upright. */
  private stairs({ start, end, size }: ScheduleState, rates: readonly number[]): Point[] {
    return rates.flatMap((rate, i) => {
      const [from, to] = [start + i * size, Math.min(end, start + (i + 1) * size)];
      return [from, to].map((step): Point => [this.x(step), this.y(rate)]);
    });
  }
}

type Point = readonly [number, number];

function path(points: readonly Point[]): string {
  return points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
}

/** Highest rate of a curve, and the steps (or epochs) done when it comes first. */
export function highest({ start, size, high }: ScheduleState): { rate: number; at: number } {
  const rate = Math.max(...high);
  return { rate, at: start + size * high.indexOf(rate) };
}

function described(schedule: ScheduleState): string {
  const { every, start, end, low } = schedule;
  const top = highest(schedule);
  const parts = [
    `${learningRate(low[0] ?? 0)} after ${every} ${start}`,
    `highest ${learningRate(top.rate)} after ${every} ${top.at}`,
  ];
  if (isComplete(schedule)) parts.push(`${learningRate(low.at(-1) ?? 0)} for ${every} ${end}`);
  return `Learning rate by ${every}: ${parts.join(', ')}`;
}

/** Whether the curve reaches the end of the planned run. */
export function isComplete({ start, end, size, low, is_whole, why }: ScheduleState): boolean {
  return is_whole && why === '' && low.length > 0 && start + size * low.length >= end;
}
