import { s, setAttr, uniqueId } from '../dom';
import type { LiveMemory } from './memory-live-data';
import { linePath } from './path';
import { linear, type Scale } from './scale';

const LEFT = 2;
const RIGHT = 2;
const TOP = 5;
/** Room above the highest value, so that a line at the top can be distinguished from the frame. */
const HEADROOM = 1.08;

/** Use as an area from zero, what is reserved and free hatched above it, and the peak as a level. */
export class LiveMemoryPlot {
  readonly svg = s('svg', { class: 'plot wb-live-plot', 'aria-hidden': 'true' });
  private readonly hatch = uniqueId('live-free');
  private readonly content = s('g');
  private readonly reading = s('line', { class: 'mark', hidden: true });
  private x: Scale = linear(0, 1, 0, 1);

  constructor() {
    const stripe = s('rect', { class: 'free-stripe', width: 1, height: 5 });
    const size = { width: 5, height: 5, patternUnits: 'userSpaceOnUse' };
    const turned = { id: this.hatch, ...size, patternTransform: 'rotate(45)' };
    this.svg.append(s('defs', {}, s('pattern', turned, stripe)), this.content, this.reading);
  }

  draw(data: LiveMemory, width: number, height: number): void {
    setAttr(this.svg, 'viewBox', `0 0 ${width} ${height}`);
    setAttr(this.svg, 'height', height);
    const first = data.steps[0] as number;
    const last = data.steps[data.steps.length - 1] as number;
    this.x = linear(Math.min(first, last - 1), last, LEFT, width - RIGHT);
    const y = linear(0, top(data) * HEADROOM || 1, height - 0.5, TOP);
    const base = Math.round(height) - 0.5;
    const parts: Element[] = [];
    if (data.reserved) parts.push(...this.area(data, data.reserved, y, base, 'reserved'));
    parts.push(...this.area(data, data.used, y, base, 'used'));
    parts.push(s('line', { x1: LEFT, x2: width - RIGHT, y1: base, y2: base, class: 'axis' }));
    parts.push(...peak(data.peak, y, width));
    this.content.replaceChildren(...parts);
    setAttr(this.reading, 'y2', height);
  }

  /** Marks a sample; null marks none. */
  point(step: number | null): void {
    setAttr(this.reading, 'hidden', step === null);
    if (step === null) return;
    const at = Math.round(this.x(step)) + 0.5;
    setAttr(this.reading, 'x1', at);
    setAttr(this.reading, 'x2', at);
  }

  stepAt(pixel: number): number {
    return this.x.invert(pixel);
  }

  private area(
    { steps }: LiveMemory,
    values: Float32Array,
    y: Scale,
    base: number,
    what: 'used' | 'reserved',
  ): Element[] {
    const to = this.x(steps[steps.length - 1] as number);
    const isAlone = steps.length === 1;
    const from = isAlone ? LEFT : this.x(steps[0] as number);
    // a sample that is alone is a level: a line through one point is none
    const line = isAlone
      ? `M${LEFT} ${y(values[0] as number).toFixed(1)}H${to.toFixed(1)}`
      : linePath(steps, values, steps.length, this.x, y) || 'M0 0';
    const fill = what === 'reserved' ? `url(#${this.hatch})` : null;
    const closed = `${line}L${to.toFixed(1)} ${base}L${from.toFixed(1)} ${base}Z`;
    return [
      ...(what === 'used' ? [s('path', { d: closed, class: 'live-clear' })] : []),
      s('path', { d: closed, class: `live-${what}-area`, fill }),
      s('path', { d: line, class: `live-${what}` }),
    ];
  }
}

function top(data: LiveMemory): number {
  let most = data.peak;
  for (const column of [data.used, data.reserved ?? []]) {
    for (const value of column) most = Math.max(most, value);
  }
  return most;
}

function peak(value: number, y: Scale, width: number): Element[] {
  const at = Math.round(y(value)) + 0.5;
  return [
    s('line', { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: 'mark live-peak' }),
    s('path', { d: `M${LEFT} ${at - 4}v8l7-4z`, class: 'peak' }),
  ];
}
