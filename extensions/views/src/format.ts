/** Figures and names as the interface words them: at most three digits, a unit, a true minus. */

/** Three significant digits with k, M, G: `1.9k`, `412`, `0.31`. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 999.5e6) return `${digits(value / 1e9)}G`;
  if (size >= 999.5e3) return `${digits(value / 1e6)}M`;
  return size >= 999.5 ? `${digits(value / 1e3)}k` : digits(value);
}

/** At most three significant digits, no exponent for everyday sizes. */
export function digits(value: number, significant = 3): string {
  if (!Number.isFinite(value)) return String(value).replace('-', '−');
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-3 || size >= 1e6)
      ? value.toExponential(1).replace('e+', 'e')
      : String(Number(value.toPrecision(significant)));
  return text.replace(/^-/, '−');
}

/** A loss or accuracy beside the chart: always the same width for the same size. */
export function metric(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-2 || size >= 1e4)) return value.toExponential(1).replace('e+', 'e');
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size < 0.1 ? 3 : 2);
}

/** `1.0e-3`, as it stands in a learning-rate field. */
export function learningRate(value: number | null): string {
  return value === null || !Number.isFinite(value) ? '' : value.toExponential(1).replace('e+', 'e');
}

/** A number that was typed (`3e-4`, `0,001`); null when it is none. */
export function parseNumber(text: string): number | null {
  const trimmed = text.trim().replace(',', '.').replace('−', '-');
  const value = Number(trimmed);
  return trimmed === '' || !Number.isFinite(value) ? null : value;
}

/** `48 s`, `1 min 30 s`, `2 h 5 min`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return join(`${minutes} min`, whole % 60, 's');
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? join(`${hours} h`, minutes % 60, 'min') : `${Math.floor(hours / 24)} d`;
}

function join(head: string, rest: number, unit: string): string {
  return rest === 0 ? head : `${head} ${rest} ${unit}`;
}

/** How long ago, in one unit: `16 s`, `2 min`, `3 h`, `1 d`. `now` and `then` in seconds. */
export function age(now: number, then: number): string {
  const seconds = Math.max(0, now - then);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export interface ByteUnit {
  readonly name: string;
  readonly size: number;
}

const UNITS: readonly ByteUnit[] = [
  { name: 'TiB', size: 2 ** 40 },
  { name: 'GiB', size: 2 ** 30 },
  { name: 'MiB', size: 2 ** 20 },
  { name: 'KiB', size: 2 ** 10 },
];

/** The unit in which `bytes` is 1 or more. */
export function byteUnit(bytes: number): ByteUnit {
  return UNITS.find((unit) => bytes >= unit.size) ?? { name: 'B', size: 1 };
}

/** `341 MiB`, `1.2 MiB`, `186 KiB`. */
export function bytes(value: number): string {
  const unit = byteUnit(value);
  return `${inUnit(value, unit)} ${unit.name}`;
}

/** A number of bytes in a given unit, without its name: `341`, `6.4`, `0.2`. */
export function inUnit(value: number, unit: ByteUnit): string {
  const amount = value / unit.size;
  if (amount === 0 || unit.size === 1) return count(Math.round(amount));
  if (amount < 0.05) return '<0.1';
  return amount >= 10 ? count(Math.round(amount)) : amount.toFixed(1).replace(/\.0$/, '');
}

/** `78.4 %` of a fraction. */
export function percent(fraction: number): string {
  return `${(100 * fraction).toFixed(1)} %`;
}

/** `16,000`: groups of three, as the graph's views and Python write a count (`f"{n:,}"`). */
export function count(value: number): string {
  return grouped(String(value));
}

/** The same for digits that are text already; none of them may stand behind a point. */
export function grouped(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/**
 * A name from the user's code on one line: control characters and line breaks become spaces, and
 * what is longer than `most` ends in an ellipsis. Names may be hostile or 10,000 characters long.
 */
export function oneLine(text: string, most = 120): string {
  const flat = text.replace(CONTROL, ' ');
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}

/** Control characters, and the marks that turn the direction of text around. */
const CONTROL = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]+/gu;

/** `14:06` of now. */
export function clock(date = new Date()): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}
