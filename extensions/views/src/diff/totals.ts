/** Totals of both captures, as rows of A, B and the difference. */
import { formatBytes, formatCount, formatNumber } from '../graph/format';
import { isCast } from './change';
import type { DiffColumns } from './columns';
import { ratio, signedBytes, signedCount } from './words';

/** Conversions of dtype or device in one of the captures. */
export function castsOf(record: DiffColumns, letter: 'A' | 'B'): number {
  const rows = letter === 'A' ? record.node_a : record.node_b;
  const casts = record.strings.map(isCast);
  let count = 0;
  for (let row = 0; row < rows.length; row += 1)
    if (Number(rows[row]) >= 0 && casts[Number(record.node_type[row])]) count += 1;
  return count;
}

export type Total = [name: string, a: string, b: string, change: string];

export function totalsOf(record: DiffColumns): Total[] {
  const { a, b } = record;
  const count = (name: string, of: (letter: 'A' | 'B') => number): Total => {
    const [before, after] = [of('A'), of('B')];
    return [name, formatCount(before), formatCount(after), signedCount(after - before)];
  };
  const side = (letter: 'A' | 'B') => (letter === 'A' ? a : b);
  const rows: Total[] = [
    count('Backward nodes', (letter) => side(letter).num_operations),
    count('Parameters', (letter) => side(letter).num_parameters),
    [
      'Saved bytes',
      formatBytes(a.saved_bytes),
      formatBytes(b.saved_bytes),
      signedBytes(b.saved_bytes - a.saved_bytes),
    ],
    count('Casts', (letter) => castsOf(record, letter)),
  ];
  const [normA, normB] = [a.gradient_norm, b.gradient_norm];
  if (normA !== null || normB !== null) {
    const both = normA !== null && normB !== null && normA > 0 && normB > 0;
    const change = both ? ratio(Math.log(normB / normA)) : '';
    rows.push(['Gradient norm', numberOr(normA), numberOr(normB), change]);
  }
  if (a.loss !== null || b.loss !== null) {
    const change = a.loss !== null && b.loss !== null ? signedNumber(b.loss - a.loss) : '';
    rows.push(['Loss', numberOr(a.loss), numberOr(b.loss), change]);
  }
  return rows;
}

function signedNumber(value: number): string {
  return `${value > 0 ? '+' : ''}${formatNumber(value)}`;
}

function numberOr(value: number | null): string {
  return value === null ? 'unknown' : formatNumber(value);
}
