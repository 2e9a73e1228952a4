/** Numbers as every part of the two views writes them. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

/** `8.0 MiB`, `413 KiB`, `12 B`: binary units, one decimal below 100. */
export function formatBytes(bytes: number): string {
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const text = unit === 0 || value >= 99.95 ? Math.round(value).toString() : value.toFixed(1);
  return `${bytes < 0 ? '−' : ''}${text} ${UNITS[unit] ?? 'B'}`;
}

/** Marks of an axis of bytes: in the unit of the last, with as many decimals as one needs. */
export function formatMarks(marks: readonly number[]): string[] {
  let unit = 0;
  while (Math.abs(marks.at(-1) ?? 0) >= 1024 ** (unit + 1) && unit < UNITS.length - 1) unit += 1;
  const values = marks.map((bytes) => bytes / 1024 ** unit);
  const digits = Math.max(
    ...values.map((value) => (Number(value.toFixed(2)).toString().split('.')[1] ?? '').length),
  );
  return values.map((value) => `${value.toFixed(digits)} ${UNITS[unit] ?? 'B'}`);
}

/** `26,214,400`. */
export function formatCount(count: number): string {
  return Math.round(count).toLocaleString('en');
}

/** `operation` or `operations`, with the count. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

/** Three significant digits with a true minus; `NaN` and `infinite` stay words. */
export function formatNumber(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'infinite' : '−infinite';
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-3 || size >= 1e6)
      ? value.toExponential(2).replace('e+', 'e')
      : Number(value.toPrecision(3)).toString();
  return text.replace(/-/g, '−');
}

/** `9.7 ms`, `180 µs`, `1.24 s`: one decimal below 100. */
export function formatSeconds(seconds: number): string {
  if (seconds === 0) return '0';
  const [value, unit] =
    seconds >= 0.9995
      ? [seconds, 's']
      : seconds >= 0.9995e-3
        ? [seconds * 1e3, 'ms']
        : [seconds * 1e6, 'µs'];
  const text = unit === 's' ? value.toPrecision(3) : value.toFixed(value < 99.95 ? 1 : 0);
  return `${text} ${unit}`;
}

/** `45.6 %` of a share from 0 to 1. */
export function formatShare(share: number): string {
  return Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : '';
}

/** A string on one line: control characters, line breaks and their runs become one space. */
export function oneLine(text: string): string {
  // eslint-disable-next-line no-control-regex -- control characters are exactly what is removed
  return text.replace(/[\u0000-\u001f\u007f\u2028\u2029\u202a-\u202e\u2066-\u2069]+/g, ' ').trim();
}

/** At most `limit` characters, the middle replaced by `…`: both ends of a path matter. */
export function shorten(text: string, limit: number): string {
  const line = oneLine(
    text.length > 4 * limit ? `${text.slice(0, limit)}…${text.slice(-limit)}` : text,
  );
  if (line.length <= limit) return line;
  const head = Math.ceil((limit - 1) / 2);
  return `${line.slice(0, head)}…${line.slice(line.length - (limit - 1 - head))}`;
}
