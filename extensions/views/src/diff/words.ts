/** How a diff writes changes: signs, arrows, differences and ratios. */
import { formatBytes, formatNumber } from '../graph/format';
import type { Operation } from '../graph/operations';
import { BEYOND, isCast, SIGNS, type Change, type DiffState } from './change';
import type { DiffColumns } from './columns';
import type { Filter } from './index-of-changes';

/** Each state in words. */
export const STATES: Record<DiffState, string> = {
  same: 'the same in both',
  removed: 'removed: only in A',
  added: 'added: only in B',
  changed: 'changed from A to B',
};

/** What the chip of a filter says, and what is said of what it leaves lit. */
export const FILTER_TEXTS: Record<Filter, { sign: string; text: string; lit: string }> = {
  removed: { sign: SIGNS.removed, text: 'Removed', lit: 'Only in A' },
  added: { sign: SIGNS.added, text: 'Added', lit: 'Only in B' },
  changed: { sign: SIGNS.changed, text: 'Changed', lit: 'In both, but changed' },
  gradient: {
    sign: '▽',
    text: `Gradient beyond × ${BEYOND}`,
    lit: `Gradient norm changed by more than × ${BEYOND}`,
  },
  casts: { sign: '⇄', text: 'Casts', lit: 'Converts between dtypes in only one of them' },
  same: { sign: SIGNS.same, text: 'Same', lit: 'The same in both' },
  a: { sign: 'A', text: 'A', lit: 'All that A has' },
  b: { sign: 'B', text: 'B', lit: 'All that B has' },
};

/** `float32 → bfloat16`; one text where both are equal, and the one there is of one capture. */
export function arrow(a: string | undefined, b: string | undefined): string {
  if (a === undefined || b === undefined || a === b) return b ?? a ?? '';
  return `${a || 'unknown'} → ${b || 'unknown'}`;
}

/** `8.0 → 4.0 MiB`: the unit once where both share it. */
export function bytesArrow(a: number, b: number): string {
  const [before, after] = [formatBytes(a), formatBytes(b)];
  if (before === after) return after;
  const [number = '', unit] = before.split(' ');
  return after.endsWith(` ${unit}`) ? `${number} → ${after}` : `${before} → ${after}`;
}

/** `−8.1 MiB`, `+64 B`, `0 B`. */
export function signedBytes(change: number): string {
  return `${change > 0 ? '+' : ''}${formatBytes(change)}`;
}

/** `+3`, `−2`, `0`. */
export function signedCount(change: number): string {
  const text = Math.abs(change).toLocaleString('en');
  return `${change > 0 ? '+' : change < 0 ? '−' : ''}${text}`;
}

/** `× 3.4` or `÷ 7.0` of a logarithm, empty for next to nothing; words where one of the two was 0 or not finite. */
export function ratio(log: number): string {
  if (!Number.isFinite(log)) return log > 0 ? 'from 0' : 'to 0';
  const factor = Math.exp(Math.abs(log));
  if (factor < 1.05) return '';
  const text = factor < 99.95 ? factor.toFixed(1) : formatNumber(factor);
  return `${log < 0 ? '÷' : '×'} ${text}`;
}

/** `▲ × 3.4` or `▼ ÷ 7.0`. */
export function growthText({ a, b, growth }: Change): string {
  if (growth === 0) return '';
  const sign = growth > 0 ? '▲' : '▼';
  if (a?.norm === Infinity || b?.norm === Infinity)
    return `${sign} ${b?.norm === Infinity ? 'not finite' : 'finite again'}`;
  const text = ratio(growth);
  return text && `${sign} ${text}`;
}

/** What changed of an operation that both have, in a few words; empty where nothing to see did. */
export function detailOf({ state, a, b, left, joined }: Change): string {
  if (state !== 'changed' || !a || !b) return '';
  const casts = joined.filter(isCast);
  if (a.dtype !== b.dtype && casts.length > 0) return `+${named(casts)} · ${b.dtype}`;
  if (a.dtype !== b.dtype) return arrow(a.dtype, b.dtype);
  if (a.shape !== b.shape) return arrow(a.shape, b.shape);
  const parts = [
    joined.length > 0 ? `+${named(joined)}` : '',
    left.length > 0 ? `−${named(left)}` : '',
  ].filter(Boolean);
  if (parts.length > 0) return parts.join(' ');
  // Not their sum: what one node of a call saves, another of the same call may share.
  if (a.saved !== b.saved) return `holds first ${bytesArrow(a.saved, b.saved)}`;
  return a.shared === b.shared ? 'another backward' : `shares ${bytesArrow(a.shared, b.shared)}`;
}

/** `2 casts`, `TBackward0`, `3 nodes`: backward nodes that joined or left an operation. */
export function named(types: readonly string[]): string {
  const [first = ''] = types;
  if (types.every(isCast)) return types.length === 1 ? 'cast' : `${types.length} casts`;
  return types.length === 1 ? first : `${types.length} nodes`;
}

/** The text of the pill beside an operation that made a loss. */
export function lossText({ a, b }: DiffColumns, { rows }: Operation): string {
  const [ofA, ofB] = [a, b].map(({ root }) => rows.includes(root));
  const value = (loss: number | null): string => (loss === null ? '' : formatNumber(loss));
  const both = arrow(value(a.loss), value(b.loss));
  if (ofA && ofB) return both.includes('→') ? both : `loss ${both}`;
  return ofA ? `A loss ${value(a.loss)}` : ofB ? `B loss ${value(b.loss)}` : '';
}
