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

/** Round numbers that cover [low, high] in about `wanted` steps of 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, wanted: number): number[] {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((one) => one * power >= rough) ?? 10;
  const step = factor * power;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const values: number[] = [];
  for (let i = first; i <= last; i += 1) values.push(Number((i * step).toPrecision(12)));
  return values;
}

/** Digits after the point that tell neighbouring ticks apart. */
export function tickLabel(value: number, step: number): string {
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  return value.toFixed(places).replace('-', '−');
}
