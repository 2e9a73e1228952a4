/** What differs in one sentence, as `MemoryDiff.sentence` says it. */
import { signedBytes } from '../diff/words';
import { formatBytes } from '../graph/format';
import { hasModules } from '../memory/callers';
import { changesOf } from './groups';
import { causeOf } from './naming';
import type { Side } from './side';

/** `B's peak is 1.4 MiB higher, 234 KiB to 1.6 MiB; the largest change is +448 KiB of …` */
export function sentenceOf(a: Side, b: Side): string {
  const change = b.record.peak_bytes - a.record.peak_bytes;
  const [before, after] = [a, b].map(({ record }) => formatBytes(record.peak_bytes));
  const way = change > 0 ? 'higher' : 'lower';
  const head =
    change === 0
      ? `Both peaks are ${before}`
      : `B's peak is ${formatBytes(Math.abs(change))} ${way}, ${before} to ${after}`;
  const place = hasModules(a.record) || hasModules(b.record) ? 'module' : 'line';
  const named = [a, b].map(({ record, blocks }) => ({
    record,
    blocks,
    naming: causeOf(record, place),
  }));
  const [ofA, ofB] = named;
  const largest = ofA && ofB ? changesOf(ofA, ofB)[0] : undefined;
  if (!largest?.change) return `${head}; what they are made of is the same.`;
  return `${head}; the largest change is ${signedBytes(largest.change)} of ${largest.what}.`;
}
