/**
 * What is predicted, over the areas: the limit of a GPU, the interval of a peak, where it would
 * end.
 */
import { formatBytes } from '../graph/format';
import { LEFT, PHASES, RIGHT, xOf, type ChartView } from './scale';
import { xOfEvent, type Frame, type Height } from './timeline';
import { beside, cross, label } from './timeline-pen';

/** Up to so many pixels there is room for one label at a height. */
const NARROW = 560;

/** A hollow ✕ where the chosen "What if?" runs out of memory. */
export function paintFailure(frame: Frame, view: ChartView, y: Height): void {
  const { failure } = view;
  if (!failure || failure.event + 1 < view.from || failure.event + 1 > view.to) return;
  if (Array.from(view.record.oom_event).includes(failure.event)) return; // it has its own mark
  const x = xOfEvent(view, frame.width, failure.event);
  const series = view.all.reserved ?? view.all.total;
  const level = y(series[failure.event + 1] ?? 0);
  cross(frame, x, level, false);
  const rest = `predicted on ${failure.card}`;
  const [left, said] = beside(frame, 'Out of memory', [rest], x, 14);
  label(frame, 'Out of memory', said, left, level - 14, frame.palette.bad);
}

/**
 * What the GPU leaves the allocator: a line with its name, or a note where it is above all else.
 */
export function paintUsable(frame: Frame, view: ChartView, y: Height): void {
  const { card, card_bytes: bytes } = view.record;
  if (bytes < 0 || view.hidden.size > 0) return;
  const { context, palette, width } = frame;
  const level = Math.round(y(bytes)) + 0.5;
  const usable = `${formatBytes(bytes)} usable`;
  if (level < PHASES + 2) {
    label(frame, `↑ ${card || 'GPU'}`, usable, LEFT + 6, PHASES + 10, palette.ink2);
    return;
  }
  context.strokeStyle = palette.bad;
  context.lineWidth = 1.5;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(LEFT, level);
  context.lineTo(width - RIGHT, level);
  context.stroke();
  context.setLineDash([]);
  // In a narrow chart a refused request is said there, and names the GPU above it.
  if (width > NARROW || view.record.oom_event.length === 0)
    label(frame, card || 'GPU', usable, LEFT + 6, level + 11, palette.bad);
}

/** The bounds of the reserved bytes of a predicted peak, as a bracket. */
export function paintInterval(frame: Frame, view: ChartView, y: Height): void {
  const { record } = view;
  const [low = -1, high = -1] = record.peak_interval;
  const position = record.peak_event + 1;
  const shown = position >= view.from && position <= view.to && view.hidden.size === 0;
  if (!record.is_predicted || low < 0 || high <= low || !shown) return;
  const { context, palette, width } = frame;
  // Beside the peak, where the scrubber may stand.
  const x = Math.min(width - 6, Math.round(xOf(view, width, position)) + 8) + 0.5;
  context.strokeStyle = palette.ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x, y(low));
  context.lineTo(x, y(high));
  for (const end of [low, high]) {
    context.moveTo(x - 4, y(end));
    context.lineTo(x + 4, y(end));
  }
  context.stroke();
}

/** The largest number of bytes that the chart has to show for this. */
export function limitOf({ record, hidden }: ChartView, most: number): number {
  if (hidden.size > 0) return 0;
  const high = record.is_predicted ? (record.peak_interval[1] ?? 0) : 0;
  const near = record.card_bytes <= FAR * most ? record.card_bytes : 0;
  return Math.max(high, near);
}

/** A limit beyond so many times what was held would leave the chart empty. */
const FAR = 2;
