import { h, s, setAttr, setShown, setText } from '../dom';
import { bytes, count } from '../format';
import type { LiveMemory } from './memory-live-data';
import { LiveMemoryPlot } from './memory-live-plot';
import { observeWidth, type ChartView } from './metric-chart';
import { chartTable } from './table';

const NOTHING_YET = 'No measurements yet: they start with the next sampled step.';
const WHAT = {
  allocator: {
    note: 'caching allocator',
    used: 'allocated',
    title:
      'The allocator’s own counters after each sampled step: allocated_bytes, reserved_bytes and ' +
      'inactive_split_bytes (fragmentation), current. Within a step there is more: that is the peak.',
    peak: 'allocated_bytes, peak: since the process began or the peak was last reset',
  },
  card: {
    note: 'simulated GPU',
    used: 'allocated',
    title:
      'Predicted: what an allocator on the simulated GPU holds after each sampled step. ' +
      'Within a step there is more: that is the peak.',
    peak: 'The highest since the GPU was set',
  },
  rank: {
    note: 'rank 0',
    used: 'held',
    title:
      'What the first rank holds, as it reports it: allocated by torch on a GPU, resident memory ' +
      'of its process on a CPU. Every rank is in the tooltip of Parallel and in TensorBoard.',
    peak: 'The highest it has reported',
  },
  process: {
    note: 'this process',
    used: 'resident',
    title:
      'A CPU has no caching allocator: resident memory of the whole process after each sampled step.',
    peak: 'The highest since the process began, as the operating system keeps it',
  },
};

/**
 * Memory while it trains: what is used, what is reserved around it, how much of that is in
 * fragments, and the peak as a level, over the newest samples.
 */
export function liveMemoryStrip(height: number): ChartView<LiveMemory | null> {
  const plot = new LiveMemoryPlot();
  const note = h('span', { class: 'wb-reading' });
  const key = keys();
  const table = chartTable('Memory by step');
  const head = h('header', {}, h('h3', {}, 'Memory now'), note, h('span', { class: 'sp' }));
  head.append(...key.all.map((one) => one.el), table.button);
  const empty = h('p', { class: 'wb-live-empty' }, NOTHING_YET);
  const figure = h(
    'figure',
    { class: 'wb-chart wb-live', tabindex: 0 },
    head,
    empty,
    plot.svg,
    table.el,
  );
  let held: LiveMemory | null = null;
  let drawn = '';
  let pointed = -1;

  const draw = (): void => {
    if (!held) return;
    plot.draw(held, plot.svg.clientWidth || 640, height);
    read(pointed);
  };
  const read = (index: number): void => {
    if (!held) return;
    pointed = Math.min(index, held.steps.length - 1);
    const at = pointed < 0 ? held.steps.length - 1 : pointed;
    const step = held.steps[at] as number;
    plot.point(pointed < 0 ? null : step);
    setText(note, pointed < 0 ? WHAT[held.of].note : `step ${count(step)}`);
    key.show(held, at);
  };
  plot.svg.addEventListener('pointermove', (event) => {
    const { left } = plot.svg.getBoundingClientRect();
    if (held) read(nearest(held.steps, plot.stepAt(event.clientX - left)));
  });
  plot.svg.addEventListener('pointerleave', () => read(-1));
  figure.addEventListener('keydown', (event) => {
    if (event.target !== figure || !held) return;
    const next = moved(event.key, pointed, held.steps.length);
    if (next === null) return;
    read(next);
    event.preventDefault();
  });
  const observer = observeWidth(plot.svg, draw);
  return {
    el: figure,
    update(data) {
      const last = data?.steps.length ? data.steps[data.steps.length - 1] : -1;
      const now = `${data?.of} ${last} ${data?.steps.length} ${data?.peak}`;
      if (now === drawn) return;
      drawn = now;
      held = data;
      setShown(empty, data === null);
      for (const el of [plot.svg, table.button, ...key.all.map((one) => one.el)]) {
        setShown(el, data !== null);
      }
      figure.setAttribute('aria-label', data ? summary(data) : `Memory now. ${NOTHING_YET}`);
      setText(note, '');
      setAttr(note, 'title', data ? WHAT[data.of].title : null);
      if (!data) return;
      draw();
      table.update(['step', ...columns(data).map(([name]) => name)], () => rows(data));
    },
    dispose: () => observer.disconnect(),
  };
}

interface Key {
  readonly el: HTMLElement;
  readonly name: Text;
  readonly value: HTMLElement;
}

/** The legend, which carries the figures: of the newest sample, or of the one pointed at. */
function keys(): { all: Key[]; show(data: LiveMemory, at: number): void } {
  const swatch = (kind: string): SVGElement => {
    const line = s('path', { d: 'M0 4h14', class: `live-${kind}` });
    return s('svg', { width: 14, height: 8 }, line);
  };
  const key = (name: string, ...before: Node[]): Key => {
    const [text, value] = [document.createTextNode(`${name} `), h('b')];
    return {
      el: h('span', { class: 'wb-key' }, ...before, h('span', {}, text, value)),
      name: text,
      value,
    };
  };
  const used = key('allocated', swatch('used'));
  const reserved = key('reserved', swatch('reserved'));
  const fragments = key('fragmentation');
  const peak = key(
    'peak',
    s('svg', { width: 8, height: 8 }, s('path', { d: 'M0 0v8l7-4z', class: 'peak' })),
  );
  return {
    all: [used, reserved, fragments, peak],
    show(data, at) {
      const words = WHAT[data.of];
      if (used.name.data !== `${words.used} `) used.name.data = `${words.used} `;
      for (const [one, column] of [
        [used, data.used],
        [reserved, data.reserved],
        [fragments, data.fragmentation],
      ] as const) {
        setShown(one.el, column !== null);
        if (column) setText(one.value, bytes(column[at] as number));
      }
      setText(peak.value, bytes(data.peak));
      setAttr(peak.el, 'title', data.peakIsKept ? words.peak : 'The highest of the samples');
    },
  };
}

function columns(data: LiveMemory): [string, Float32Array][] {
  const all: [string, Float32Array | null][] = [
    [WHAT[data.of].used, data.used],
    ['reserved', data.reserved],
    ['fragmentation', data.fragmentation],
  ];
  return all.filter((one): one is [string, Float32Array] => one[1] !== null);
}

function summary(data: LiveMemory): string {
  const at = data.steps.length - 1;
  const parts = columns(data).map(([name, values]) => `${name} ${bytes(values[at] as number)}`);
  const step = count(data.steps[at] as number);
  return `Memory after step ${step}, ${WHAT[data.of].note}: ${parts.join(', ')}; peak ${bytes(data.peak)}`;
}

/** About fifty rows, the newest first. */
function rows(data: LiveMemory): string[][] {
  const stride = Math.max(1, Math.ceil(data.steps.length / 50));
  const found: string[][] = [];
  for (let i = data.steps.length - 1; i >= 0; i -= stride) {
    const cells = columns(data).map(([, values]) => bytes(values[i] as number));
    found.push([count(data.steps[i] as number), ...cells]);
  }
  return found;
}

function nearest(steps: Int32Array, wanted: number): number {
  let best = 0;
  for (let i = 0; i < steps.length; i += 1) {
    const closer =
      Math.abs((steps[i] as number) - wanted) < Math.abs((steps[best] as number) - wanted);
    if (closer) best = i;
  }
  return best;
}

/** Where a key moves the reading; −1 back to now, null where it is no key of this strip. */
function moved(key: string, pointed: number, length: number): number | null {
  const stride = Math.max(1, Math.round(length / 100));
  const start = pointed < 0 ? length - 1 : pointed;
  if (key === 'ArrowLeft') return Math.max(0, start - stride);
  if (key === 'ArrowRight') return Math.min(length - 1, start + stride);
  if (key === 'Home') return 0;
  if (key === 'End') return length - 1;
  return key === 'Escape' ? -1 : null;
}
