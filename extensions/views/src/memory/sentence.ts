/** The peak in one sentence, computed from the record. */
import { formatBytes, formatCount, shorten } from '../graph/format';
import { peakPlace } from './blocks';
import { lastRefusal, refusalSentence } from './refusals';
import { CATEGORIES, categoryLabel, timeAt, type MemoryColumns, type Series } from './series';

const PARTS = 3;

/** `Peak 3.4 MiB in backward of body.0: activations 61 %, parameters 20 %, gradients 12 %.` */
export function peakSentence(record: MemoryColumns, series: Series): string {
  const position = record.peak_event + 1;
  const total = series.total[position] ?? 0;
  const place = shorten(peakPlace(record), 80);
  const shares = composition(series, position)
    .filter(({ bytes }) => bytes / total > 0.005) // less is 0 %, and no part of the peak in words
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, PARTS)
    .map(
      ({ category, bytes }) => `${categoryLabel(category)} ${Math.round((100 * bytes) / total)} %`,
    );
  // A snapshot does not say what its blocks were for; "unknown 100 %" would explain nothing.
  const known = (series.live[CATEGORIES.length - 1]?.[position] ?? 0) < total;
  const reserved = record.reserved_bytes >= 0 ? `, ${reservedOf(record)}` : '';
  const where = place ? ` in ${place}` : '';
  const explained = known
    ? `: ${shares.join(', ')}`
    : ` after event ${formatCount(position)} (${timeAt(record, position).toFixed(1)} ms)`;
  const kind = record.is_predicted ? 'Predicted peak' : 'Peak';
  const peak = `${kind} ${formatBytes(record.peak_bytes)}${reserved}${where}${explained}.`;
  const refused = lastRefusal(record);
  return refused === null ? peak : `${refusalSentence(record, refused)} ${peak}`;
}

/** What is reserved when the most is live; of a prediction the bounds of it. */
function reservedOf({
  reserved_bytes,
  peak_interval: [low = -1, high = -1],
}: MemoryColumns): string {
  if (low < 0 || low === high) return `${formatBytes(reserved_bytes)} reserved then`;
  return `${formatBytes(low)} to ${formatBytes(high)} reserved at most`;
}

/** Bytes of every category at a position, in stacking order. */
export function composition(
  series: Series,
  position: number,
): { category: number; bytes: number }[] {
  return series.live.map((values, category) => ({ category, bytes: values?.[position] ?? 0 }));
}

/** What a recording is called, with its step and device. */
export function titleOf(record: MemoryColumns): string {
  const title = shorten(record.title || 'Memory', 80);
  const said = record.step === null || title.endsWith(`step ${formatCount(record.step)}`); // by an experiment
  const step = said ? '' : ` · step ${formatCount(record.step ?? 0)}`;
  return `${title}${step} · ${shorten(record.device, 20)}`;
}
