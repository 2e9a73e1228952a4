/** What the strip says in words: the cell under the pointer, and the strip as a whole. */
import { formatCount, formatNumber, shorten } from '../graph/format';
import { readingAt, type FlowColumns, type Reading, type Strip } from './strip';

/** One value: `0.527`, `no gradient`, `not finite`, `not in the model`. */
export function readingText(reading: Reading): string {
  switch (reading.kind) {
    case 'norm':
      return formatNumber(reading.value);
    case 'none':
      return 'no gradient';
    case 'infinite':
      return 'not finite';
    case 'absent':
      return 'not in the model, or frozen';
  }
}

/** `steps 1 to 64`. */
export function stepsText(record: FlowColumns): string {
  const last = record.step.length - 1;
  if (last < 0) return 'no step yet';
  const [from, to] = [record.step[0] ?? 0, record.step[last] ?? 0];
  return from === to
    ? `step ${formatCount(from)}`
    : `steps ${formatCount(from)} to ${formatCount(to)}`;
}

/**
 * A cell in one line: `block3, step 42: 0.527`, or for several columns the range and the largest.
 * A `chosen` column that this would not name is described by itself.
 */
export function cellText(
  record: FlowColumns,
  strip: Strip,
  row: number,
  cell: number,
  chosen = -1,
): string {
  const name = shorten(record.rows[row]?.label ?? '', 60);
  const [start = 0, end = 0] = strip.starts.slice(cell, cell + 2);
  const [first, last] = [record.step[start] ?? 0, record.step[end - 1] ?? 0];
  const at = row * strip.cells + cell;
  const peak = strip.peak[at] ?? start;
  const alone = chosen >= 0 && (chosen !== peak || Number.isNaN(strip.norm[at]));
  const column = alone ? chosen : peak;
  const value = readingText(readingAt(record, row, column));
  if (alone || end - start === 1)
    return `${name}, step ${formatCount(record.step[column] ?? 0)}: ${value}`;
  const missing = Math.round((strip.missing[at] ?? 0) * (end - start));
  const where = `${name}, steps ${formatCount(first)} to ${formatCount(last)}`;
  if (Number.isNaN(strip.norm[at])) return `${where}: ${value}`;
  const gaps =
    missing > 0 ? `; no gradient in ${formatCount(missing)} of ${formatCount(end - start)}` : '';
  return `${where}: up to ${value} at ${formatCount(record.step[peak] ?? 0)}${gaps}`;
}

/** A row as numbers, for the table. */
export interface Summary {
  readonly smallest: number;
  readonly median: number;
  readonly largest: number;
  /** Sampled steps without a gradient, and of how many. */
  readonly missing: number;
  readonly sampled: number;
  readonly infinite: number;
}

export function summaryOf(record: FlowColumns, row: number): Summary {
  const values: number[] = [];
  let [missing, sampled, infinite] = [0, 0, 0];
  for (let column = 0; column < record.step.length; column += 1) {
    const reading = readingAt(record, row, column);
    if (reading.kind === 'absent') continue;
    sampled += 1;
    if (reading.kind === 'none') missing += 1;
    if (reading.kind === 'infinite') infinite += 1;
    if (reading.kind === 'norm') values.push(reading.value);
  }
  values.sort((a, b) => a - b);
  const at = (index: number): number => values[index] ?? NaN;
  const middle = (values.length - 1) / 2;
  const median = (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2;
  return { smallest: at(0), median, largest: at(values.length - 1), missing, sampled, infinite };
}
