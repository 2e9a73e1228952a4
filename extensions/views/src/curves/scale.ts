import { grouped } from '../format';

/** A linear map from data to pixels. */
export interface Scale {
  (value: number): number;
  readonly invert: (pixel: number) => number;
}

export function linear(from: number, to: number, start: number, end: number): Scale {
  const slope = (end - start) / (to - from || 1);
  const scale = (value: number): number => start + (value - from) * slope;
  return Object.assign(scale, { invert: (pixel: number) => from + (pixel - start) / slope });
}

/** A logarithmic one; what is not above zero has no place on it. */
export function logarithmic(from: number, to: number, start: number, end: number): Scale {
  const inner = linear(Math.log(from), Math.log(to), start, end);
  const scale = (value: number): number => inner(Math.log(value));
  return Object.assign(scale, { invert: (pixel: number) => Math.exp(inner.invert(pixel)) });
}

/** Ticks that enclose the range; a flat curve gets a little room around it. */
export function enclosing(low: number, high: number): number[] {
  if (high - low < 1e-9 * Math.max(1, Math.abs(high))) {
    const room = Math.max(Math.abs(high) * 0.1, 1e-3);
    return enclosing(low - room, high + room);
  }
  const step = tickStep(high - low, 4);
  const first = Math.floor(low / step + 1e-9) * step;
  return multiples(first, Math.ceil(high / step - 1e-9) * step, step);
}

const MOST_LOG_TICKS = 7;

/** Within less than a factor of so much, 1, 2 and 5 would be too few ticks. */
const FEW = 5;

/**
 * The same on a logarithmic axis: 1, 2 and 5 of every power of ten; powers of ten where there is no
 * room for those; and those of a linear one within a few units.
 */
export function enclosingLog(low: number, high: number): number[] {
  const even = enclosing(low, high);
  if (high < FEW * low && (even[0] as number) > 0) return even;
  for (const round of [[1, 2, 5], [1]]) {
    const found = roundBetween(low, high, round);
    if (found.length <= MOST_LOG_TICKS) return found;
  }
  const powers = roundBetween(low, high, [1]);
  const every = Math.ceil((powers.length - 1) / (MOST_LOG_TICKS - 1));
  const count = Math.ceil((powers.length - 1) / every) + 1;
  return Array.from({ length: count }, (_, i) => (powers[0] as number) * 10 ** (every * i));
}

/** The multiples of powers of ten from the last one below `low` to the first one above `high`. */
function roundBetween(low: number, high: number, round: readonly number[]): number[] {
  const all: number[] = [];
  const [first, last] = [low, high].map((value) => Math.floor(Math.log10(value)));
  for (let power = (first as number) - 1; power <= (last as number) + 1; power += 1) {
    for (const one of round) all.push(Number(`${one}e${power}`));
  }
  const from = all.findLastIndex((value) => value <= low * (1 + 1e-9));
  const to = all.findIndex((value) => value >= high * (1 - 1e-9));
  return all.slice(from, Math.max(to, from + 1) + 1);
}

/** A round distance (1, 2 or 5 times a power of ten) that fits about `wanted` times into `span`. */
export function tickStep(span: number, wanted: number): number {
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((one) => one * power >= rough * 0.999) ?? 10);
}

/** The multiples of a round distance that are in [low, high]. */
export function ticks(low: number, high: number, wanted: number): number[] {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  return multiples(low, high, tickStep(span, wanted));
}

/** The multiples of `step` in [low, high], free of rounding noise. */
export function multiples(low: number, high: number, step: number): number[] {
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const values: number[] = [];
  for (let i = first; i <= last; i += 1) values.push(Number((i * step).toPrecision(12)));
  return values;
}

/** A tick of a logarithmic axis. */
export function logLabel(value: number): string {
  const fits = value >= 1e-3 && value < 1e4;
  return fits ? String(Number(value.toPrecision(3))) : value.toExponential(0).replace('e+', 'e');
}

/** The digits that distinguish neighbouring ticks; with an exponent where zeros would not fit. */
export function tickLabel(value: number, step: number): string {
  if (Math.abs(value) >= 1e4) {
    // as many digits as distinguish one tick from the next, the same for all of a power of ten
    const power = (of: number): number => Math.floor(Math.log10(of) + 1e-9);
    const isWhole = Math.abs((step / 10 ** power(step)) % 1) < 1e-6;
    const digits = power(Math.abs(value)) - power(step) + (isWhole ? 0 : 1);
    const text = value.toExponential(Math.max(0, Math.min(3, digits)));
    return text.replace('e+', 'e').replace(/^-/, '−');
  }
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  const [whole = '', ...rest] = value.toFixed(places).replace('-', '−').split('.');
  return [grouped(whole), ...rest].join('.');
}
