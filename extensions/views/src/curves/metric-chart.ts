import { Button } from '../controls/button';
import { h, s, setAttr, setClass, setShown, setText } from '../dom';
import { count, metric, percent } from '../format';
import type { Curve } from '../kernel';
import { dragAcross } from './drag';
import { MetricPlot, type MetricData } from './metric-plot';
import { logLabel, tickLabel } from './scale';
import { StepView } from './step-view';
import { chartTable } from './table';
import { lastUntil, nearest } from './window';

export interface ChartView<D> {
  readonly el: HTMLElement;
  update(data: D): void;
  dispose(): void;
}

/** A metric as a chart names and writes it. */
interface Kind {
  readonly title: string;
  /**
   * Whether it comes first in a row of charts: it has the names of the keys and of the markers, and
   * the buttons of the row.
   */
  readonly leads: boolean;
  /** What the newest figure of training is, in a word and in full, and that of one step. */
  readonly word: string;
  readonly newest: string;
  readonly ofStep: string;
  readonly format: (value: number) => string;
  readonly label: (value: number, step: number | null) => string;
}

const LOSS: Kind = {
  title: 'Loss',
  leads: true,
  word: 'average',
  newest: 'The average of the last steps',
  ofStep: 'Of this step alone',
  format: metric,
  label: (value, step) => (step === null ? logLabel(value) : tickLabel(value, step)),
};

const ACCURACY: Kind = {
  title: 'Accuracy',
  leads: false,
  word: '',
  newest: 'Of all samples of the epoch so far',
  ofStep: 'Of all samples of its epoch up to this step',
  format: (value) => (Number.isFinite(value) ? percent(value) : String(value)),
  label: (value, step) => `${tickLabel(100 * value, 100 * (step ?? 1))}%`,
};

const HINT = 'Drag to zoom, double click to see all again. Keys: arrows read, + and − zoom, 0 all';

/** The loss over steps: raw and smoothed train loss, validation rings, what happened when. */
export function lossChart(name: string, height: number, view = new StepView()) {
  return metricChart(LOSS, name, height, view);
}

/** The accuracy over steps, beside a loss chart that shows the same part of them. */
export function accuracyChart(height: number, view: StepView) {
  return metricChart(ACCURACY, '', height, view);
}

function metricChart(
  kind: Kind,
  note: string,
  height: number,
  view: StepView,
): ChartView<MetricData> {
  const plot = new MetricPlot();
  const reading = h('span', { class: 'wb-reading' }, note);
  const train = key(
    kind.word ? 'train avg' : 'train',
    s('path', { d: 'M0 4h16', class: 'smooth' }),
    16,
  );
  const rings = s('g', { class: 'rings' }, s('circle', { cx: 4, cy: 4, r: 3 }));
  const val = key('val', rings, 8);
  const table = chartTable(`${kind.title} by step`);
  const all = new Button('is-tiny', { label: 'All', title: 'Show all steps again' }, () =>
    view.show(null),
  );
  const log = new Button('is-tiny', { label: 'log', title: 'Logarithmic axis' }, () => {
    isLog = !isLog;
    draw();
  });
  const heading = h('h3', { title: note ? `${kind.title}: ${note}` : null }, kind.title);
  const head = h('header', {}, heading, reading, h('span', { class: 'sp' }));
  head.append(train.el, val.el);
  if (kind.leads) head.append(all.el, log.el);
  head.append(table.button);
  const classes = kind.leads ? 'wb-chart' : 'wb-chart is-brief';
  const figure = h('figure', { class: classes, tabindex: 0 }, head, plot.svg, table.el);
  plot.svg.append(s('title', {}, HINT));
  let held: MetricData | null = null;
  let isLog = false;

  const draw = (): void => {
    if (!held) return;
    const { label, leads, format } = kind;
    const look = { range: view.range, isLog, label, hasLabels: leads };
    plot.draw(held, look, plot.svg.clientWidth || 384, height);
    setShown(all.el, view.range !== null);
    setAttr(log.el, 'aria-pressed', isLog);
    setShown(val.el, (held.val?.length ?? 0) > 0);
    figure.setAttribute('aria-label', summary(kind, note, held));
    const { train: curve, val: points } = held;
    table.update(['step', 'train', 'val'], () => rows(curve, points, format));
    read();
  };
  /** The newest figures, or those of the step pointed at. */
  const read = (): void => {
    const curve = held?.train;
    const at = curve && view.pointed !== null ? nearest(curve, view.pointed) : -1;
    const step = at < 0 ? null : (curve?.steps[at] as number);
    plot.point(step);
    setClass(figure, 'is-pointing', step !== null);
    setText(reading, step === null ? note : `step ${count(step)}`);
    setClass(reading, 'is-name', step === null);
    const { format } = kind;
    if (step === null || !curve) {
      setText(train.value, curve ? lastOf(curve.smooth, curve.length, format) : '');
      const alone = curve && kind.word ? lastOf(curve.values, curve.length, format) : '';
      const full = alone === '' ? kind.newest : `${kind.newest}; the last one alone: ${alone}`;
      setAttr(train.el, 'title', full);
      setText(val.value, held?.val ? lastOf(held.val.values, held.val.length, format) : '');
      setAttr(val.el, 'title', 'The newest validation');
      return;
    }
    setText(train.value, format(curve.values[at] as number));
    setAttr(train.el, 'title', kind.ofStep);
    const last = held?.val ? lastUntil(held.val, step) : -1;
    const isKnown = last >= 0 && held?.val;
    setText(val.value, isKnown ? format(held?.val?.values[last] as number) : 'none yet');
    setAttr(
      val.el,
      'title',
      isKnown ? `Validated at step ${count(held?.val?.steps[last] as number)}` : null,
    );
  };
  plot.svg.addEventListener('pointermove', (event) => {
    const { left } = plot.svg.getBoundingClientRect();
    if (held?.train) view.point(plot.stepAt(event.clientX - left));
  });
  plot.svg.addEventListener('pointerleave', () => view.point(null));
  dragAcross(
    plot.svg,
    (from, to) => view.show([plot.stepAt(from), plot.stepAt(to)]),
    () => view.show(null),
  );
  figure.addEventListener('keydown', (event) => {
    if (event.target !== figure || !held?.train?.length) return;
    if (pressed(event.key, view, held.train)) event.preventDefault();
  });
  const observer = observeWidth(plot.svg, draw);
  let range = view.range;
  const stop = view.subscribe(() => {
    if (view.range === range) return read();
    range = view.range;
    draw();
  });
  return {
    el: figure,
    update(data) {
      held = data;
      draw();
    },
    dispose: () => {
      stop();
      observer.disconnect();
    },
  };
}

/** What a key does to the view; false where it is none of ours. */
function pressed(name: string, view: StepView, curve: Curve): boolean {
  const lastPoint = curve.length - 1;
  const last = curve.steps[lastPoint] as number;
  const at = view.pointed === null ? lastPoint : nearest(curve, view.pointed);
  const stride = Math.max(1, Math.round(curve.length / 100));
  const next = {
    ArrowLeft: at - stride,
    ArrowRight: at + stride,
    Home: 0,
    End: lastPoint,
  };
  if (name in next) {
    const point = Math.max(0, Math.min(lastPoint, next[name as keyof typeof next]));
    view.point(curve.steps[point] as number);
    return true;
  }
  const [from, to] = view.range ?? [0, last];
  const middle = Math.max(from, Math.min(to, view.pointed ?? to));
  if (name === '+' || name === '=') {
    view.show([middle - (middle - from) / 2, middle + (to - middle) / 2]);
  } else if (name === '-') {
    const wider = [middle - 2 * (middle - from) - 1, middle + 2 * (to - middle) + 1] as const;
    view.show(wider[0] <= 0 && wider[1] >= last ? null : [Math.max(0, wider[0]), wider[1]]);
  } else if (name === '0') view.show(null);
  else if (name === 'Escape' && view.pointed !== null) view.point(null);
  else if (name === 'Escape' && view.range) view.show(null);
  else return false;
  return true;
}

function key(
  name: string,
  mark: SVGElement,
  width: number,
): { el: HTMLElement; value: HTMLElement } {
  const value = h('b');
  const swatch = s('svg', { width, height: 8, 'aria-hidden': 'true' }, mark);
  return { el: h('span', { class: 'wb-key' }, swatch, h('span', {}, name), value), value };
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

function lastOf(values: Float32Array, length: number, format: (value: number) => string): string {
  const value = values[length - 1];
  return value === undefined ? '' : format(value);
}

function summary(kind: Kind, note: string, data: MetricData): string {
  const curve = data.train;
  const name = note ? `${kind.title} (${note})` : kind.title;
  if (!curve?.length) return `${name}, no step yet`;
  const last = count(curve.steps[curve.length - 1] as number);
  const newest = lastOf(curve.smooth, curve.length, kind.format);
  const parts = [
    `${name} up to step ${last}: ${['train', kind.word, newest].filter(Boolean).join(' ')}`,
  ];
  if (kind.word) parts.push(`last step ${lastOf(curve.values, curve.length, kind.format)}`);
  if (data.val?.length) {
    parts.push(`validation ${lastOf(data.val.values, data.val.length, kind.format)}`);
  }
  if (data.nanFrom !== null) parts.push(`not a number from step ${data.nanFrom}`);
  return parts.join(', ');
}

/** About fifty rows, evenly taken, with every validation point. */
function rows(
  train: Curve | undefined,
  val: Curve | undefined,
  format: (value: number) => string,
): string[][] {
  const byStep = new Map<number, [string, string]>();
  const stride = Math.max(1, Math.ceil((train?.length ?? 0) / 50));
  for (let i = 0; train && i < train.length; i += stride) {
    byStep.set(train.steps[i] as number, [format(train.values[i] as number), '']);
  }
  for (let i = 0; val && i < val.length; i += 1) {
    const step = val.steps[i] as number;
    const row = byStep.get(step) ?? ['', ''];
    byStep.set(step, [row[0], format(val.values[i] as number)]);
  }
  const sorted = [...byStep].sort(([a], [b]) => a - b);
  return sorted.map(([step, cells]) => [count(step), ...cells]);
}
