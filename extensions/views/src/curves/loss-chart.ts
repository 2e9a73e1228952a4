import { h, s, setText } from '../dom';
import { count, metric } from '../format';
import type { Curve } from '../kernel';
import { LossPlot, type LossData } from './loss-plot';
import { chartTable } from './table';

export interface ChartView<D> {
  readonly el: HTMLElement;
  update(data: D): void;
  dispose(): void;
}

/** The loss over steps: raw and smoothed train loss, validation rings, what happened when. */
export function lossChart(lossName: string, height: number): ChartView<LossData> {
  const plot = new LossPlot();
  const reading = h('span', { class: 'wb-reading' }, lossName);
  const trainValue = h('b');
  const valValue = h('b');
  const trainKey = s('path', { d: 'M0 4h16', class: 'smooth' });
  const valKey = s('g', { class: 'rings' }, s('circle', { cx: 4, cy: 4, r: 3 }));
  const val = h('span', { class: 'wb-key' }, s('svg', { width: 8, height: 8 }, valKey), 'val ');
  const train = h('span', { class: 'wb-key' }, s('svg', { width: 16, height: 8 }, trainKey));
  train.append('train ', trainValue);
  val.append(valValue);
  const table = chartTable('Loss by step');
  const head = h('header', {}, h('h3', {}, 'Loss'), reading, h('span', { class: 'sp' }));
  head.append(train, val, table.button);
  const figure = h('figure', { class: 'wb-chart', tabindex: 0 }, head, plot.svg, table.el);
  let held: LossData | null = null;
  let smooth = new Float32Array(0);
  let pointed = -1;

  const draw = (): void => {
    if (!held) return;
    smooth = plot.draw(held, plot.svg.clientWidth || 384, height);
    setText(trainValue, lastOf(smooth, smooth.length));
    setText(valValue, held.val ? lastOf(held.val.values, held.val.length) : '');
    val.toggleAttribute('hidden', !held.val?.length);
    figure.setAttribute('aria-label', summary(lossName, held, smooth));
    const { train: curve, val: points } = held;
    table.update(['step', 'train', 'val'], () => rows(curve, points));
    read(pointed);
  };
  const read = (index: number): void => {
    const curve = held?.train;
    pointed = curve && index >= 0 ? Math.min(index, curve.length - 1) : -1;
    const step = pointed < 0 ? undefined : curve?.steps[pointed];
    plot.point(step ?? null);
    const value = curve?.values[pointed];
    const shown = step !== undefined && value !== undefined;
    setText(reading, shown ? `step ${count(step)}: ${metric(value)}` : lossName);
  };
  plot.svg.addEventListener('pointermove', (event) => {
    const { left } = plot.svg.getBoundingClientRect();
    if (held?.train) read(nearest(held.train, plot.stepAt(event.clientX - left)));
  });
  plot.svg.addEventListener('pointerleave', () => read(-1));
  figure.addEventListener('keydown', (event) => {
    const length = held?.train?.length ?? 0;
    if (event.target !== figure || length === 0) return;
    const stride = Math.max(1, Math.round(length / 100));
    const start = pointed < 0 ? length - 1 : pointed;
    const next = {
      ArrowLeft: start - stride,
      ArrowRight: start + stride,
      Home: 0,
      End: length - 1,
    };
    if (event.key === 'Escape') read(-1);
    else if (event.key in next) read(Math.max(0, next[event.key as keyof typeof next]));
    else return;
    event.preventDefault();
  });
  const observer = observeWidth(plot.svg, draw);
  return {
    el: figure,
    update(data) {
      held = data;
      draw();
    },
    dispose: () => observer.disconnect(),
  };
}

/** Redraws when the width of an element changes. */
export function observeWidth(el: Element, draw: () => void): { disconnect: () => void } {
  if (!('ResizeObserver' in globalThis)) return { disconnect: () => undefined };
  let width = -1;
  const observer = new ResizeObserver(([entry]) => {
    const next = Math.round(entry?.contentRect.width ?? 0);
    if (next === width || next === 0) return;
    width = next;
    draw();
  });
  observer.observe(el);
  return observer;
}

function nearest(curve: Curve, step: number): number {
  let low = 0;
  let high = curve.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((curve.steps[middle] as number) < step) low = middle + 1;
    else high = middle;
  }
  const before = low > 0 ? step - (curve.steps[low - 1] as number) : Infinity;
  return before < (curve.steps[low] as number) - step ? low - 1 : low;
}

function lastOf(values: Float32Array, length: number): string {
  const value = values[length - 1];
  return value === undefined ? '' : metric(value);
}

function summary(name: string, data: LossData, smooth: Float32Array): string {
  const curve = data.train;
  if (!curve?.length) return `Loss (${name}), no step yet`;
  const last = count(curve.steps[curve.length - 1] as number);
  const parts = [`Loss (${name}) up to step ${last}: train ${lastOf(smooth, smooth.length)}`];
  if (data.val?.length) parts.push(`validation ${lastOf(data.val.values, data.val.length)}`);
  if (data.nanFrom !== null) parts.push(`not a number from step ${data.nanFrom}`);
  return parts.join(', ');
}

/** About fifty rows, evenly taken, with every validation point. */
function rows(train: Curve | undefined, val: Curve | undefined): string[][] {
  const byStep = new Map<number, [string, string]>();
  const stride = Math.max(1, Math.ceil((train?.length ?? 0) / 50));
  for (let i = 0; train && i < train.length; i += stride) {
    byStep.set(train.steps[i] as number, [metric(train.values[i] as number), '']);
  }
  for (let i = 0; val && i < val.length; i += 1) {
    const step = val.steps[i] as number;
    const row = byStep.get(step) ?? ['', ''];
    byStep.set(step, [row[0], metric(val.values[i] as number)]);
  }
  const sorted = [...byStep].sort(([a], [b]) => a - b);
  return sorted.map(([step, cells]) => [count(step), ...cells]);
}
