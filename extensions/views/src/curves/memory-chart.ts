import { CATEGORIES, type MemoryChart } from '@torch-workbench/records';
import { roving, setStop } from '../controls/roving';
import { h, setAttr, setText } from '../dom';
import { byteUnit, bytes, count, inUnit } from '../format';
import { observeWidth, type ChartView } from './metric-chart';
import { MemoryPlot } from './memory-plot';
import { chartTable } from './table';

/** Category -> the words a person reads. */
export const CATEGORY_LABELS: Readonly<Record<(typeof CATEGORIES)[number], string>> = {
  parameters: 'parameters',
  optimizer: 'optimizer',
  buffers: 'buffers + inputs',
  gradients: 'gradients',
  activations: 'activations',
  temporaries: 'temporaries',
  unknown: 'unknown',
};

/**
 * Memory by category over the last captured step, the peak marked, and the legend in the same
 * order.
 */
export function memoryChart(height: number): ChartView<MemoryChart> {
  const plot = new MemoryPlot();
  const note = h('span');
  const table = chartTable('Memory at the peak');
  const head = h('header', {}, h('h3', {}, 'Memory'), note, h('span', { class: 'sp' }));
  head.append(table.button);
  const legend = h('ul', { class: 'wb-legend' });
  const body = h('div', { class: 'wb-memwrap' }, plot.svg, legend);
  const figure = h('figure', { class: 'wb-chart wb-memory', tabindex: 0 }, head, body, table.el);
  const rows = (): HTMLElement[] => [...legend.querySelectorAll<HTMLElement>('[tabindex]')];
  roving(legend, rows);
  let held: MemoryChart | null = null;

  const draw = (): void => {
    if (!held) return;
    plot.draw(held, plot.svg.clientWidth || 260, height);
  };
  const observer = observeWidth(plot.svg, draw);
  return {
    el: figure,
    update(chart) {
      if (chart === held) return;
      held = chart;
      const unit = byteUnit(chart.peak_bytes);
      setText(note, `step ${chart.step === null ? '' : count(chart.step)}, ${unit.name}`);
      setAttr(note, 'title', chart.basis);
      figure.setAttribute('aria-label', summary(chart));
      legend.replaceChildren(...legendRows(chart, (name) => plot.highlight(name)));
      table.update(['category', 'at the peak'], () =>
        CATEGORIES.map((name, i) => [CATEGORY_LABELS[name], bytes(chart.at_peak[i] ?? 0)]),
      );
      const [first] = rows();
      if (first) setStop(rows(), first);
      draw();
    },
    dispose: () => observer.disconnect(),
  };
}

function legendRows(chart: MemoryChart, highlight: (name: string | null) => void): HTMLElement[] {
  const unit = byteUnit(chart.peak_bytes);
  const head = h('li', { class: 'head' }, h('span', {}, 'at the peak'), h('span', {}, unit.name));
  const rows = [head];
  if (chart.reserved_bytes >= chart.peak_bytes) {
    const swatch = h('i', { class: 'wb-swatch is-free' });
    const free = inUnit(chart.reserved_bytes - chart.peak_bytes, unit);
    rows.push(h('li', {}, swatch, h('span', {}, 'free'), h('span', {}, free)));
  }
  for (const [i, name] of [...CATEGORIES.entries()].reverse()) {
    const value = chart.at_peak[i] ?? 0;
    const swatch = h('i', { class: 'wb-swatch', 'data-category': name });
    const row = h('li', { tabindex: 0 }, swatch, h('span', {}, CATEGORY_LABELS[name]));
    row.append(h('span', {}, inUnit(value, unit)));
    for (const event of ['pointerenter', 'focus']) {
      row.addEventListener(event, () => highlight(name));
    }
    for (const event of ['pointerleave', 'blur']) {
      row.addEventListener(event, () => highlight(null));
    }
    rows.push(row);
  }
  return rows;
}

function summary(chart: MemoryChart): string {
  const order = CATEGORIES.map((name, i) => ({ name, value: chart.at_peak[i] ?? 0 }));
  order.sort((a, b) => b.value - a.value);
  const largest = order.slice(0, 3).filter((one) => one.value > 0);
  const parts = largest.map((one) => `${CATEGORY_LABELS[one.name]} ${bytes(one.value)}`);
  const where = chart.peak_label ? ` in ${chart.peak_label}` : '';
  return `Memory of step ${chart.step === null ? '?' : count(chart.step)}: peak ${bytes(chart.peak_bytes)}${where}; ${parts.join(', ')}`;
}
