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

/** A round distance (1, 2 or 5 times a power of ten) that fits about `wanted` times into `span`. */
export function tickStep(span: number, wanted: number): number {
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((one) => one * power >= rough * 0.999) ?? 10);
}

/** The multiples of a round distance that lie in [low, high]. */
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

/** The digits that tell neighbouring ticks apart; with an exponent where zeros would not fit. */
export function tickLabel(value: number, step: number): string {
  if (Math.abs(value) >= 1e4) {
    const extra = Math.ceil(Math.log10(Math.abs(value) / step) - 1e-9);
    const text = value.toExponential(Math.max(0, Math.min(3, extra)));
    return text.replace('e+', 'e').replace(/^-/, '−');
  }
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  const [whole = '', ...rest] = value.toFixed(places).replace('-', '−').split('.');
  return [grouped(whole), ...rest].join('.');
}
