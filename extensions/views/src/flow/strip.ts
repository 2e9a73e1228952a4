/**
 * A gradient flow reduced to the cells of a picture. Where there are more columns than room,
 * neighbours share a cell: it shows their largest norm, so a spike is never lost, and which share
 * of them had no gradient.
 */

/** What the view needs of a `GradientFlow` record. */
export interface FlowColumns {
  readonly title: string;
  readonly device: string;
  readonly experiment: string | null;
  readonly total_sampled: number;
  readonly notes: readonly string[];
  readonly rows: readonly {
    readonly path: string;
    readonly label: string;
    readonly cls: string;
    readonly num_modules: number;
    readonly num_parameters: number;
  }[];
  readonly step: ArrayLike<number>;
  readonly norm: ArrayLike<number>;
}

/** The record's sign for a row that was no part of the model, or frozen. */
const NOT_MEASURED = -1;
export const LEVELS = 9;

export interface Strip {
  readonly rows: number;
  readonly cells: number;
  /** First column of every cell, and behind them the number of columns. */
  readonly starts: readonly number[];
  /** By row, then cell: the largest norm; Infinity: one was not finite; NaN: there was none. */
  readonly norm: Float64Array;
  /** Column of that norm; of the first one that was sampled where there was none. */
  readonly peak: Int32Array;
  /** Share of the sampled steps without a gradient; NaN where the row was no part of the model. */
  readonly missing: Float64Array;
}

/** Ends of the colour scale: the smallest and largest norm above 0. */
export type Limits = readonly [number, number];

/** What was measured of a row at a column. */
export type Reading =
  | { readonly kind: 'norm'; readonly value: number }
  | { readonly kind: 'none' | 'absent' | 'infinite' };

export function readingAt(record: FlowColumns, row: number, column: number): Reading {
  const value = record.norm[row * record.step.length + column] ?? NOT_MEASURED;
  if (Number.isNaN(value)) return { kind: 'none' };
  if (value < 0) return { kind: 'absent' };
  return value === Infinity ? { kind: 'infinite' } : { kind: 'norm', value };
}

/** Throws a sentence for a record whose columns do not fit each other. */
export function check(record: FlowColumns): void {
  const [rows, columns] = [record.rows.length, record.step.length];
  if (record.norm.length !== rows * columns)
    throw new Error(
      `${rows} modules at ${columns} steps need ${rows * columns} norms, got ${record.norm.length}`,
    );
}

/** `record` in at most `most` cells a row, each of equally many columns. */
export function reduce(record: FlowColumns, most: number): Strip {
  const columns = record.step.length;
  const length = Math.max(1, Math.ceil(columns / Math.max(1, most)));
  const cells = Math.ceil(columns / length);
  const rows = record.rows.length;
  const strip = {
    rows,
    cells,
    starts: [...Array.from({ length: cells }, (_, cell) => cell * length), columns],
    norm: new Float64Array(rows * cells).fill(NaN),
    peak: new Int32Array(rows * cells),
    missing: new Float64Array(rows * cells).fill(NaN),
  };
  for (let row = 0; row < rows; row += 1)
    for (let cell = 0; cell < cells; cell += 1) fillCell(record, strip, row, cell);
  return strip;
}

function fillCell(record: FlowColumns, strip: Strip, row: number, cell: number): void {
  const columns = record.step.length;
  const [start = 0, end = 0] = strip.starts.slice(cell, cell + 2);
  let [largest, peak, sampled, without] = [-1, -1, 0, 0];
  for (let column = start; column < end; column += 1) {
    const value = record.norm[row * columns + column] ?? NOT_MEASURED;
    if (value === NOT_MEASURED) continue;
    sampled += 1;
    if (Number.isNaN(value)) without += 1;
    if (value > largest || peak < 0) peak = column;
    if (value > largest) largest = value;
  }
  const at = row * strip.cells + cell;
  strip.norm[at] = largest < 0 ? NaN : largest;
  strip.peak[at] = peak < 0 ? start : peak;
  strip.missing[at] = sampled > 0 ? without / sampled : NaN;
}

/** Ends of the scale over all columns, whatever the room there is; null where no norm is on it. */
export function limitsOf(record: FlowColumns): Limits | null {
  let [low, high] = [Infinity, 0];
  for (let at = 0; at < record.norm.length; at += 1) {
    const value = record.norm[at] ?? NOT_MEASURED;
    if (!(value > 0) || value === Infinity) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high > 0 ? [low, high] : null;
}

/** Step of the logarithmic scale, 0 to 8; -1 for what has none: a norm of 0, or no norm. */
export function levelOf(norm: number, limits: Limits | null): number {
  if (!limits || !(norm > 0) || norm === Infinity) return -1;
  const [low, high] = limits;
  if (high <= low) return 0;
  const place = Math.log(norm / low) / Math.log(high / low);
  return Math.max(0, Math.min(LEVELS - 1, Math.floor(place * LEVELS)));
}

/** The cell that holds a column. */
export function cellOf(strip: Strip, column: number): number {
  const length = strip.cells > 1 ? (strip.starts[1] ?? 1) : Infinity;
  return Math.max(0, Math.min(strip.cells - 1, Math.floor(column / length)));
}

/** The column of a step, the last one of it; -1 where it was not sampled. Steps never descend. */
export function columnOf(record: FlowColumns, step: number): number {
  let [low, high] = [0, record.step.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((record.step[middle] ?? Infinity) <= step) low = middle + 1;
    else high = middle;
  }
  return record.step[low - 1] === step ? low - 1 : -1;
}

/** Rows that got a gradient at some step, and at another did not. */
export function partialRows(strip: Strip): number[] {
  return Array.from({ length: strip.rows }, (_, row) => row).filter((row) => {
    const missing = strip.missing.subarray(row * strip.cells, (row + 1) * strip.cells);
    return missing.some((share) => share > 0) && missing.some((share) => share < 1);
  });
}

/** The first step, and round ones about `every` cells apart, each with the cell that reaches it. */
export function ticksOf(
  record: FlowColumns,
  strip: Strip,
  every: number,
): { cell: number; step: number }[] {
  const first = record.step[0] ?? 0;
  const span = (record.step[record.step.length - 1] ?? 0) - first;
  const wanted = Math.max(1, (span / Math.max(1, strip.cells)) * every);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const unit = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= wanted) ?? 1;
  const ticks = strip.cells > 0 ? [{ cell: 0, step: first }] : [];
  let before = first;
  for (let cell = 0; cell < strip.cells; cell += 1) {
    const last = record.step[(strip.starts[cell + 1] ?? 1) - 1] ?? 0;
    const step = Math.floor(last / unit) * unit;
    if (step > before) ticks.push({ cell, step });
    before = Math.max(before, last);
  }
  return ticks;
}
