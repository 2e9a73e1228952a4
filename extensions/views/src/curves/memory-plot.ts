import { CATEGORIES, type MemoryChart } from '@torch-workbench/records';
import { s, setAttr, uniqueId } from '../dom';
import { byteUnit, bytes, grouped, inUnit, oneLine } from '../format';
import { linear, ticks, type Scale } from './scale';
import { fitted, textWidth } from './text';

const LEFT = 34;
const RIGHT = 2;
const TOP = 18;
const BOTTOM = 18;
/** Room above the highest value, so that the peak's mark does not touch the strip. */
const HEADROOM = 1.12;

/** The stacked areas, step-shaped because memory is: a block is there or it is not. */
export class MemoryPlot {
  readonly svg = s('svg', { class: 'plot', 'aria-hidden': 'true' });
  private readonly hatch = uniqueId('free');
  private readonly content = s('g');

  constructor() {
    const stripe = s('rect', { class: 'free-stripe', width: 1, height: 5 });
    const size = { width: 5, height: 5, patternUnits: 'userSpaceOnUse' };
    const turned = { id: this.hatch, ...size, patternTransform: 'rotate(45)' };
    this.svg.append(s('defs', {}, s('pattern', turned, stripe)), this.content);
  }

  draw(chart: MemoryChart, width: number, height: number): void {
    setAttr(this.svg, 'viewBox', `0 0 ${width} ${height}`);
    setAttr(this.svg, 'height', height);
    const reserved = Math.max(0, chart.reserved_bytes);
    const unit = byteUnit(chart.peak_bytes);
    const top = (Math.max(chart.peak_bytes, reserved) * HEADROOM) / unit.size || 1;
    const x = linear(0, Math.max(1, chart.num_points), LEFT, width - RIGHT);
    const scale = linear(0, top, height - BOTTOM, TOP);
    const y = Object.assign((value: number) => scale(value / unit.size), { invert: scale.invert });
    const parts: Element[] = [];
    if (reserved > 0) parts.push(...this.reserved(reserved, y, width));
    parts.push(...axis(ticks(0, top, 5), scale));
    parts.push(...areas(chart, x, y));
    const base = Math.round(y(0)) + 0.5;
    parts.push(s('line', { x1: LEFT, x2: width - RIGHT, y1: base, y2: base, class: 'axis' }));
    if (reserved > 0) parts.push(reservedLabel(inUnit(reserved, unit), y(reserved), width));
    const family = getComputedStyle(this.svg).fontFamily || 'sans-serif';
    const measure = (text: string): number => textWidth(text, 11, 400, family);
    parts.push(...phases(chart, x, y(0), height, measure));
    if (chart.peak_bytes > 0) parts.push(...this.peak(chart, x, y, width));
    this.content.replaceChildren(...parts);
  }

  /** Fades every area but one; null shows all again. */
  highlight(category: string | null): void {
    for (const area of this.content.querySelectorAll('.area')) {
      const faded = category !== null && area.getAttribute('data-category') !== category;
      setAttr(area, 'data-faded', faded ? '' : null);
    }
  }

  private reserved(bytes_: number, y: Scale, width: number): Element[] {
    const [top, bottom] = [y(bytes_), y(0)];
    const place = { x: LEFT, y: top, width: width - LEFT - RIGHT, height: bottom - top };
    const line = Math.round(top) + 0.5;
    return [
      s('rect', { ...place, fill: `url(#${this.hatch})` }),
      s('line', { x1: LEFT, x2: width - RIGHT, y1: line, y2: line, class: 'mark reserved' }),
    ];
  }

  private peak(chart: MemoryChart, x: Scale, y: Scale, width: number): Element[] {
    const at = Math.round(x(chart.peak_point + 0.5)) + 0.5;
    const top = y(chart.peak_bytes);
    const family = getComputedStyle(this.svg).fontFamily || 'sans-serif';
    const value = `peak ${bytes(chart.peak_bytes)}`;
    const valueWidth = textWidth(value, 11, 600, family);
    const measure = (text: string): number => textWidth(text, 10, 400, family);
    const onLeft = at + 5 + valueWidth > width;
    const room = onLeft ? 0 : width - (at + 10 + valueWidth);
    const where = fitted(oneLine(chart.peak_label), room, measure);
    const text = s('text', { x: onLeft ? at - 5 : at + 5, y: 12 });
    setAttr(text, 'text-anchor', onLeft ? 'end' : 'start');
    text.append(s('tspan', { class: 't-strong' }, value));
    if (where) text.append(s('tspan', { dx: 5, class: 't-mark' }, where));
    const triangle = `M${at - 4} ${top - 8}h8l-4 7z`;
    return [
      s('line', { x1: at, x2: at, y1: 4, y2: Math.max(5, top - 6), class: 'mark' }),
      s('path', { d: triangle, class: 'peak' }),
      s('g', {}, s('title', {}, `${value}, ${oneLine(chart.peak_label, 400)}`), text),
    ];
  }
}

function axis(values: number[], scale: Scale): Element[] {
  return values.flatMap((value) => {
    const at = Math.round(scale(value)) + 0.5;
    return [
      s('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, grouped(String(value))),
      s('line', { x1: LEFT - 3, x2: LEFT, y1: at, y2: at, class: 'axis' }),
    ];
  });
}

function areas(chart: MemoryChart, x: Scale, y: Scale): Element[] {
  const points = chart.num_points;
  const below = new Float64Array(points);
  const parts: Element[] = [];
  for (const [row, name] of CATEGORIES.entries()) {
    let top = '';
    let bottom = '';
    for (let i = 0; i < points; i += 1) {
      const low = y(below[i] as number).toFixed(1);
      below[i] = (below[i] as number) + (chart.bytes[row * points + i] as number);
      const high = y(below[i] as number).toFixed(1);
      const [from, to] = [x(i).toFixed(1), x(i + 1).toFixed(1)];
      top += `${i === 0 ? 'M' : 'L'}${from} ${high}L${to} ${high}`;
      bottom = `L${to} ${low}L${from} ${low}${bottom}`;
    }
    if (points > 0) {
      parts.push(s('path', { d: `${top}${bottom}Z`, class: 'area', 'data-category': name }));
    }
  }
  let outline = '';
  for (let i = 0; i < points; i += 1) {
    const high = y(below[i] as number).toFixed(1);
    outline += `${i === 0 ? 'M' : 'L'}${x(i).toFixed(1)} ${high}L${x(i + 1).toFixed(1)} ${high}`;
  }
  parts.push(s('path', { d: outline, class: 'outline' }));
  return parts;
}

function reservedLabel(text: string, top: number, width: number): Element {
  const place = { x: width - RIGHT - 4, y: top + 15, 'text-anchor': 'end' };
  return s('text', { ...place, class: 't-mark haloed' }, `reserved ${text}`);
}

function phases(
  chart: MemoryChart,
  x: Scale,
  base: number,
  height: number,
  measure: (text: string) => number,
): Element[] {
  return chart.phases.flatMap((phase, i) => {
    const [from, to] = [x(phase.start), x(phase.end)];
    const at = Math.round(from) + 0.5;
    const line = { x1: at, x2: at, y1: base, y2: height, class: 'axis' };
    const place = { x: (from + to) / 2, y: height - 4, 'text-anchor': 'middle' };
    const name = [oneLine(phase.name, 24), `${phase.name.slice(0, 3)}.`].find(
      (one) => measure(one) <= to - from - 4,
    );
    const parts: Element[] = i > 0 ? [s('line', line)] : [];
    if (name !== undefined) parts.push(s('text', place, name));
    return parts;
  });
}
