/** The peak in one sentence, computed from the record. */
import { formatBytes, formatCount, shorten } from '../graph/format';
import { peakPlace } from './blocks';
import { CATEGORIES, categoryLabel, timeAt, type MemoryColumns, type Series } from './series';

const PARTS = 3;

/** `Peak 3.4 MiB in backward of body.0: activations 61 %, parameters 20 %, gradients 12 %.` */
export function peakSentence(record: MemoryColumns, series: Series): string {
  const position = record.peak_event + 1;
  const total = series.total[position] ?? 0;
  const place = shorten(peakPlace(record), 80);
  const shares = composition(series, position)
    .filter(({ bytes }) => bytes > 0)
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, PARTS)
    .map(
      ({ category, bytes }) => `${categoryLabel(category)} ${Math.round((100 * bytes) / total)} %`,
    );
  // A snapshot does not say what its blocks were for; "unknown 100 %" would explain nothing.
  const known = (series.live[CATEGORIES.length - 1]?.[position] ?? 0) < total;
  const reserved =
    record.reserved_bytes >= 0 ? `, ${formatBytes(record.reserved_bytes)} reserved` : '';
  const where = place ? ` in ${place}` : '';
  const explained = known
    ? `: ${shares.join(', ')}`
    : ` after event ${formatCount(position)} (${timeAt(record, position).toFixed(1)} ms)`;
  return `Peak ${formatBytes(record.peak_bytes)}${reserved}${where}${explained}.`;
}

/** Bytes of every category at a position, in stacking order. */
export function composition(
  series: Series,
  position: number,
): { category: number; bytes: number }[] {
  return series.live.map((values, category) => ({ category, bytes: values?.[position] ?? 0 }));
}
