/** "Where did reserved memory go?": the parts of what is reserved, as a bar, exact to the byte. */
import { choices, h } from '../graph/dom';
import { formatBytes, formatCount, formatShare } from '../graph/format';
import type { Palette } from '../graph/theme';
import { certificatePill } from './certificate';
import type { Split } from './moment';
import { patternsOf, type Fill, type Patterns } from './patterns';
import { CATEGORIES, categoryLabel, timeAt, type MemoryColumns } from './series';

const BAR = 24;
const FUNNEL = 22;
const LEFT = 16;
/** A part that is not nothing is never drawn narrower. */
const THINNEST = 1.5;

interface Part {
  name: string;
  kind: string;
  bytes: number;
}

/** The parts in the order they are drawn; what waits, or is of other streams and pools, if any. */
export function partsOfSplit(split: Split): Part[] {
  const parts = [
    { name: 'Requested', kind: 'a', bytes: split.requested },
    { name: 'Rounding to 512 B', kind: 'r', bytes: split.rounding },
    { name: 'Slack, too small to split', kind: 's', bytes: split.slack },
    { name: 'Waiting for a stream', kind: 'w', bytes: split.waiting },
    { name: 'Pinned by splits', kind: 'x', bytes: split.pinned },
    { name: 'Free, other stream', kind: 'o', bytes: split.otherStream },
    { name: 'Free, private pool', kind: 'o', bytes: split.otherPool },
    { name: 'Releasable', kind: 'f', bytes: split.releasable },
  ];
  return parts.filter(({ kind, bytes }) => (kind !== 'o' && kind !== 'w') || bytes > 0);
}

/** `33,457,963,008 B = 27,038,345,224 + …`, and whether it is so. */
export function sumOf(split: Split): { text: string; exact: boolean } {
  const parts = partsOfSplit(split).map(({ bytes }) => bytes);
  const sum = parts.reduce((all, bytes) => all + bytes, 0);
  const exact = sum === split.reserved && parts.every((bytes) => bytes >= 0);
  const text = `${formatCount(split.reserved)} B = ${parts.map(formatCount).join(' + ')}`;
  return {
    text: `${text}, ${exact ? 'exact' : `off by ${formatCount(split.reserved - sum)} B`}`,
    exact,
  };
}

export class SplitBar {
  private readonly canvas = h('canvas', { class: 'wv-splitbar', 'aria-hidden': 'true' });
  private readonly sum = h('span', { class: 'wv-sum' });
  private readonly proof = h('span', { class: 'wv-proof' });
  private readonly parts = h('div', { class: 'wv-parts', role: 'list' });
  private readonly at: ReturnType<typeof choices<'scrubber' | 'peak'>>;
  readonly element: HTMLElement;
  private drawn: { split: Split; palette: Palette } | null = null;
  private patterns: [Palette, Patterns] | null = null;
  moment: 'scrubber' | 'peak' = 'scrubber';

  constructor(onChange: () => void) {
    this.at = choices<'scrubber' | 'peak'>(
      'Moment',
      [
        { value: 'scrubber', text: 'At the scrubber' },
        { value: 'peak', text: 'At the peak' },
      ],
      'scrubber',
      (value) => {
        this.moment = value;
        onChange();
      },
    );
    const title = h('b', {}, 'Where did reserved memory go?');
    const head = h('div', { class: 'wv-splithead' }, title, this.sum);
    head.append(this.proof, this.at.element);
    this.element = h('section', {
      class: 'wv-split',
      'aria-label': 'Where did reserved memory go?',
    });
    this.element.append(head, this.canvas, this.parts);
  }

  show(record: MemoryColumns, split: Split, position: number, palette: Palette): void {
    this.drawn = { split, palette };
    const { text, exact } = sumOf(split);
    this.sum.textContent = this.sum.title = text;
    this.sum.classList.toggle('wv-off', !exact);
    const first = this.at.element.querySelector('button');
    const label =
      this.moment === 'scrubber'
        ? `At ${timeAt(record, position).toFixed(1)} ms`
        : 'At the scrubber';
    if (first && first.textContent !== label) first.textContent = label;
    this.proof.replaceChildren(certificatePill(record));
    this.list(split);
    this.draw();
  }

  private list(split: Split): void {
    const items = partsOfSplit(split).map(({ name, kind, bytes }) =>
      h(
        'div',
        { role: 'listitem' },
        h('b', { class: `wv-state wv-state-${kind}` }, name),
        h(
          'span',
          {},
          formatBytes(bytes),
          bytes < 1024 ? null : h('i', {}, `${formatCount(bytes)} B`),
          h('i', {}, formatShare(bytes / Math.max(1, split.reserved))),
        ),
      ),
    );
    this.parts.replaceChildren(...items);
    this.parts.classList.toggle('wv-many', items.length > 5);
  }

  draw(): void {
    const { canvas, drawn } = this;
    const width = canvas.clientWidth;
    const context = canvas.getContext('2d');
    if (!context || !drawn || width < 100) return;
    const ratio = devicePixelRatio;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((BAR + FUNNEL) * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { palette, split } = drawn;
    if (this.patterns?.[0] !== palette) this.patterns = [palette, patternsOf(context, palette)];
    const spans = paintParts(context, palette, this.patterns[1], split, width - 2 * LEFT);
    this.leaders(context, palette, spans);
  }

  /** A line from each part of the bar to its name below. */
  private leaders(
    context: CanvasRenderingContext2D,
    palette: Palette,
    spans: readonly [number, number][],
  ): void {
    const left = this.canvas.getBoundingClientRect().left;
    context.strokeStyle = palette.stroke2;
    context.lineWidth = 1;
    const first = (this.parts.firstElementChild as HTMLElement | null)?.offsetTop;
    spans.forEach(([from, to], index) => {
      const item = this.parts.children[index];
      if (!(item instanceof HTMLElement) || to <= from || item.offsetTop !== first) return;
      const target = Math.round(item.getBoundingClientRect().left - left + 6) + 0.5;
      const middle = Math.round(LEFT + Math.min((from + to) / 2, from + 24)) + 0.5;
      const bend = BAR + 3.5 + 3 * (spans.length - index);
      context.beginPath();
      context.moveTo(middle, BAR);
      context.lineTo(middle, bend);
      context.lineTo(target, bend);
      context.lineTo(target, BAR + FUNNEL);
      context.stroke();
    });
  }
}

/** Draws the bar; gives the two ends of every part. */
function paintParts(
  context: CanvasRenderingContext2D,
  palette: Palette,
  patterns: Patterns,
  split: Split,
  room: number,
): [number, number][] {
  const parts = partsOfSplit(split);
  const wide = widths(
    parts.map(({ bytes }) => bytes),
    room,
  );
  const fills: Record<string, Fill> = {
    r: patterns.rounding, s: patterns.slack, x: patterns.pinned, w: palette.stroke2, f: patterns.free,
  }; // prettier-ignore
  const spans: [number, number][] = [];
  let x = 0;
  parts.forEach(({ kind }, index) => {
    const width = wide[index] ?? 0;
    if (kind === 'a') paintRequested(context, palette, split, width);
    else if (width > 0) {
      context.fillStyle = fills[kind] ?? palette.level[1];
      context.fillRect(LEFT + x, 0, width, BAR);
      if (kind === 'o') context.fillStyle = patterns.pinned;
      if (kind === 'o') context.fillRect(LEFT + x, BAR / 2, width, BAR / 2);
      if (kind === 'w') context.fillStyle = patterns.pending;
      if (kind === 'w') context.fillRect(LEFT + x, 0, width, BAR);
    }
    if (width > 0 && kind !== 'a') {
      context.strokeStyle = palette.stroke2;
      context.strokeRect(LEFT + x + 0.5, 0.5, Math.max(0.5, width - 1), BAR - 1);
    }
    spans.push([x, x + width]);
    x += width;
  });
  return spans;
}

/** Shares of the room; a part that is not nothing keeps the thinnest width, at the largest's cost. */
function widths(bytes: readonly number[], room: number): number[] {
  const sum = Math.max(
    1,
    bytes.reduce((all, one) => all + Math.max(0, one), 0),
  );
  const found = bytes.map((one) => (one > 0 ? Math.max(THINNEST, (one / sum) * room) : 0));
  const over = found.reduce((all, one) => all + one, 0) - room;
  const largest = found.indexOf(Math.max(...found));
  found[largest] = Math.max(0, (found[largest] ?? 0) - over);
  return found;
}

function paintRequested(
  context: CanvasRenderingContext2D,
  palette: Palette,
  split: Split,
  room: number,
): void {
  let x = LEFT;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  split.categories.forEach((bytes, category) => {
    const width = (bytes / Math.max(1, split.requested)) * room;
    const colour = palette.categories[CATEGORIES[category] ?? 'unknown'];
    if (width <= 0 || !colour) return;
    context.fillStyle = colour.fill;
    context.fillRect(x, 0, width > 3 ? width - 1 : width, BAR);
    const name = categoryLabel(category);
    context.font = `600 11px ${palette.font}`;
    const used = context.measureText(name).width;
    context.fillStyle = colour.ink;
    if (used + 16 < width) context.fillText(name, x + 8, BAR / 2 + 0.5);
    context.font = `11px ${palette.font}`;
    const size = formatBytes(bytes);
    if (used + context.measureText(size).width + 24 < width)
      context.fillText(size, x + 14 + used, BAR / 2 + 0.5);
    x += width;
  });
}
