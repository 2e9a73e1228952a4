import type { Marker } from '@torch-workbench/records';
import { s, setAttr, setShown, uniqueId } from '../dom';
import { count } from '../format';
import type { Curve } from '../kernel';
import { placeMarkers } from './markers';
import { linePath } from './path';
import { valueRange } from './range';
import { enclosing, enclosingLog, linear, logarithmic, ticks, type Scale } from './scale';
import { textWidth } from './text';
import { above, between } from './window';

const LEFT = 34;
const RIGHT = 8;
const TOP = 18;
const BOTTOM = 18;
/** What is at the edge of the plot is not cut in half. */
const OVER = 4;
/** Validation rings closer than this, in pixels, would run into each other: a line takes over. */
const RING_GAP = 9;

export interface MetricData {
  readonly train: Curve | undefined;
  readonly val: Curve | undefined;
  readonly markers: readonly Marker[];
  readonly totalSteps: number;
  readonly live: boolean;
  /** The step from which the loss is not finite, if it is. */
  readonly nanFrom: number | null;
}

/** How a metric is drawn. */
export interface Look {
  /** Steps to show; null: all, with those to come. */
  readonly range: readonly [number, number] | null;
  readonly isLog: boolean;
  /** The label of a tick; `step` is the distance to the next, null on a logarithmic axis. */
  readonly label: (value: number, step: number | null) => string;
  /** Whether the labels of markers are written above the plot. */
  readonly hasLabels: boolean;
}

/** The steps that are shown, and the pixels that there are for them. */
interface Room {
  readonly from: number;
  readonly to: number;
  readonly width: number;
  readonly height: number;
}

/** The drawing itself: built once, then patched. */
export class MetricPlot {
  readonly svg = s('svg', { class: 'plot wb-metric', 'aria-hidden': 'true' });
  private readonly hatch = uniqueId('nan');
  private readonly clip = uniqueId('clip');
  private readonly frame = s('rect', { y: 0 });
  private readonly axes = s('g');
  private readonly marks = s('g');
  private readonly nan = s('rect', { fill: `url(#${this.hatch})` });
  private readonly raw = s('path', { class: 'raw' });
  private readonly line = s('path', { class: 'smooth' });
  private readonly valLine = s('path', { class: 'val-line' });
  private readonly rings = s('g', { class: 'rings' });
  private readonly halo = s('circle', { class: 'live-halo', r: 6 });
  private readonly dot = s('circle', { class: 'live-dot', r: 3 });
  private readonly cursor = s('line', { class: 'mark', y1: TOP });
  private axesKey = '';
  private marksKey = '';
  private x: Scale = linear(0, 1, LEFT, LEFT + 1);

  constructor() {
    const stripe = s('rect', { class: 'nan-stripe', width: 1.2, height: 5 });
    const pattern = s(
      'pattern',
      { id: this.hatch, width: 5, height: 5, patternUnits: 'userSpaceOnUse' },
      stripe,
    );
    setAttr(pattern, 'patternTransform', 'rotate(45)');
    const clip = s('clipPath', { id: this.clip }, this.frame);
    const curves = s('g', { 'clip-path': `url(#${this.clip})` });
    curves.append(this.raw, this.line, this.valLine, this.rings, this.halo, this.dot);
    this.svg.append(s('defs', {}, pattern, clip), this.axes, this.nan, this.marks, curves);
    this.svg.append(this.cursor);
    setShown(this.cursor, false);
  }

  draw(all: MetricData, look: Look, width: number, height: number): void {
    const last = all.train?.steps[all.train.length - 1] ?? 0;
    const whole = [0, axisEnd(Math.max(last, all.nanFrom ?? 0), all.totalSteps)] as const;
    const [from, to] = look.range ?? whole;
    const data = look.range ? shownOf(all, from, to) : all;
    const drawn = look.isLog
      ? { ...data, train: data.train && above(data.train), val: data.val && above(data.val) }
      : data;
    const range = valueRange(drawn.train, [drawn.val]) ?? { low: look.isLog ? 0.1 : 0, high: 1 };
    const yTicks = (look.isLog ? enclosingLog : enclosing)(range.low, range.high);
    const [low, high] = [yTicks[0] as number, yTicks.at(-1) as number];
    this.x = linear(from, to, LEFT, width - RIGHT);
    const y = (look.isLog ? logarithmic : linear)(low, high, height - BOTTOM, TOP);
    setAttr(this.svg, 'viewBox', `0 0 ${width} ${height}`);
    setAttr(this.svg, 'height', height);
    setAttr(this.frame, 'x', LEFT - OVER);
    setAttr(this.frame, 'width', Math.max(0, width - LEFT - RIGHT + 2 * OVER));
    setAttr(this.frame, 'height', height);
    const room = { from, to, width, height };
    this.drawAxes(yTicks, y, look, room);
    this.drawMarks(data, look, room);
    this.drawCurves(drawn, y, low, high);
    setAttr(this.cursor, 'y2', height - BOTTOM);
  }

  /** The step under a pixel of the drawing. */
  stepAt(pixel: number): number {
    return this.x.invert(pixel);
  }

  /** Shows the reading line at a step, or hides it. */
  point(step: number | null): void {
    setShown(this.cursor, step !== null);
    if (step === null) return;
    setAttr(this.cursor, 'x1', this.x(step));
    setAttr(this.cursor, 'x2', this.x(step));
  }

  private drawAxes(yTicks: number[], y: Scale, look: Look, room: Room): void {
    const { from, to, width, height } = room;
    const key = [yTicks, look.isLog, from, to, width, height].join();
    if (key === this.axesKey) return;
    this.axesKey = key;
    const step = look.isLog ? null : (yTicks[1] ?? 1) - (yTicks[0] ?? 0);
    const parts: Element[] = [];
    for (const [i, value] of yTicks.entries()) {
      const at = Math.round(y(value)) + 0.5;
      const place = { x1: LEFT, x2: width - RIGHT, y1: at, y2: at };
      parts.push(s('line', { ...place, class: i === 0 ? 'axis' : 'grid' }));
      const label = { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' };
      parts.push(s('text', label, look.label(value, step)));
    }
    parts.push(s('text', { x: width - RIGHT, y: height - 4, 'text-anchor': 'end' }, 'step'));
    const end = width - RIGHT - 28;
    const wanted = ticks(from, to, Math.max(2, width / 90)).filter(Number.isInteger);
    for (const value of wanted) {
      const at = Math.round(this.x(value)) + 0.5;
      parts.push(
        s('line', { x1: at, x2: at, y1: height - BOTTOM, y2: height - BOTTOM + 3, class: 'axis' }),
      );
      const text = count(value);
      if (at + text.length * 3.4 > end) continue;
      const isFirst = at - text.length * 3.4 < LEFT;
      const place = { x: isFirst ? at - 1 : at, 'text-anchor': isFirst ? 'start' : 'middle' };
      parts.push(s('text', { ...place, y: height - 4 }, text));
    }
    this.axes.replaceChildren(...parts);
  }

  private drawMarks(data: MetricData, look: Look, { from, width, height }: Room): void {
    const key = `${this.axesKey}|${data.nanFrom}|${data.markers.map((m) => m.step + m.text).join()}`;
    if (key === this.marksKey) return;
    this.marksKey = key;
    const bottom = height - BOTTOM;
    const family = getComputedStyle(this.svg).fontFamily || 'sans-serif';
    const nan = data.nanFrom;
    const markers = [...data.markers];
    const begins = nan !== null && nan >= from;
    if (begins) markers.push({ step: nan, text: `NaN from step ${count(nan)}` });
    const placed = placeMarkers(markers, {
      left: 2,
      right: width - 2,
      x: this.x,
      measure: (text, bold) => textWidth(text, 10, bold ? 600 : 400, family),
    });
    const parts = placed.map(({ x, label, title, newest, covered }) => {
      const isNan = begins && newest;
      const y1 = covered || !look.hasLabels ? TOP : 4;
      const line = s('line', { x1: x, x2: x, y1, y2: bottom, class: isNan ? 'nan' : 'mark' });
      const strong = newest ? 't-mark t-strong' : 't-mark';
      const text =
        label && look.hasLabels
          ? s('text', { x: label.x, y: 12, 'text-anchor': label.anchor, class: strong }, label.text)
          : null;
      return s('g', {}, s('title', {}, title), line, text);
    });
    this.marks.replaceChildren(...parts);
    setShown(this.nan, nan !== null);
    if (nan === null) return;
    const left = this.x(Math.max(nan, from));
    setAttr(this.nan, 'x', left);
    setAttr(this.nan, 'y', TOP);
    setAttr(this.nan, 'width', Math.max(0, width - RIGHT - left));
    setAttr(this.nan, 'height', bottom - TOP);
  }

  private drawCurves(data: MetricData, y: Scale, low: number, high: number): void {
    const { train, val } = data;
    const clamp = (value: number): number => Math.min(high, Math.max(low, value));
    const inside = Object.assign((value: number) => y(clamp(value)), { invert: y.invert });
    const length = train?.length ?? 0;
    const steps = train?.steps ?? new Int32Array(0);
    setAttr(this.raw, 'd', train ? linePath(steps, train.values, length, this.x, inside) : '');
    setAttr(this.line, 'd', train ? linePath(steps, train.smooth, length, this.x, inside) : '');
    this.drawValidation(val, inside);
    const lastStep = steps[length - 1];
    const lastValue = train?.smooth[length - 1] ?? NaN;
    const known = lastStep !== undefined && Number.isFinite(lastValue);
    // A line needs two points: the first one is drawn as the dot.
    for (const [circle, shown] of [
      [this.halo, known && data.live],
      [this.dot, known && (data.live || length === 1)],
    ] as const) {
      setShown(circle, shown);
      if (!shown) continue;
      setAttr(circle, 'cx', this.x(lastStep).toFixed(1));
      setAttr(circle, 'cy', inside(lastValue).toFixed(1));
    }
  }

  /** A ring per validation; where they crowd, a line with a ring at its end. */
  private drawValidation(val: Curve | undefined, y: Scale): void {
    const number = val?.length ?? 0;
    const span = number > 1 ? this.x(val?.steps[number - 1] ?? 0) - this.x(val?.steps[0] ?? 0) : 0;
    const crowded = number > 2 && span / (number - 1) < RING_GAP;
    const path = val && crowded ? linePath(val.steps, val.values, number, this.x, y) : '';
    setAttr(this.valLine, 'd', path);
    const first = crowded ? number - 1 : 0;
    const rings = number - first;
    while (this.rings.childElementCount > rings) this.rings.lastElementChild?.remove();
    while (this.rings.childElementCount < rings) this.rings.append(s('circle', { r: 3 }));
    for (let i = first; i < number && val; i += 1) {
      const ring = this.rings.children[i - first] as SVGCircleElement;
      const value = val.values[i] as number;
      setShown(ring, Number.isFinite(value));
      setAttr(ring, 'cx', this.x(val.steps[i] as number).toFixed(1));
      setAttr(ring, 'cy', Number.isFinite(value) ? y(value).toFixed(1) : 0);
    }
  }
}

/** What there is between two steps. */
function shownOf(data: MetricData, from: number, to: number): MetricData {
  const last = data.train?.steps[data.train.length - 1] ?? 0;
  return {
    ...data,
    train: data.train && between(data.train, from, to),
    val: data.val && between(data.val, from, to),
    markers: data.markers.filter(({ step }) => from <= step && step <= to),
    live: data.live && last <= to,
    nanFrom: data.nanFrom !== null && data.nanFrom <= to ? data.nanFrom : null,
  };
}

/**
 * Where the step axis ends: a little beyond the last step, in jumps, so that a young run fills the
 * width and the axis still holds still between redraws; never beyond the end of the run.
 */
function axisEnd(last: number, total: number): number {
  const wanted = Math.max(10, last * 1.08);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const ladder = [1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
  const end = power * (ladder.find((one) => one * power >= wanted) ?? 10);
  return total > 0 ? Math.max(last, Math.min(end, total)) : end;
}
