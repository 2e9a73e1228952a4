/** Figures and sentences as `workbench/compare/text.py` words them. */
import type { ComparedArm, CompareRecord } from '@torch-workbench/records';
import { formatCount, plural } from '../graph/format';
import { variantsOf, modelsOf } from './report';

export const NONE = '–';

/** `14.0 s`, `12.1 ms`, `141 µs`. */
export function duration(seconds: number): string {
  if (Number.isNaN(seconds)) return NONE;
  if (seconds >= 0.9995) return `${three(seconds)} s`;
  return seconds >= 0.9995e-3 ? `${three(seconds * 1e3)} ms` : `${three(seconds * 1e6)} µs`;
}

/** `1.4×`; two decimals near 1, none from 10. */
export function factor(ratio: number): string {
  if (Math.abs(ratio - 1) < 0.095) return `${ratio.toFixed(2)}×`;
  return `${ratio.toFixed(ratio < 9.95 ? 1 : 0)}×`;
}

/** What may be said of its speed, and the interval that it rests on: `1.4× faster`, `1.30 – 1.52`. */
export function speed(variant: ComparedArm): { said: string; interval: string } {
  const { verdict, speedup, speedup_low: low, speedup_high: high } = variant;
  if (verdict === 'baseline') return { said: 'baseline', interval: '' };
  if (Number.isNaN(speedup)) return { said: NONE, interval: '' };
  if (Number.isNaN(low)) return { said: 'too few rounds', interval: '' };
  if (verdict === 'slower')
    return { said: `${factor(1 / speedup)} slower`, interval: range(1 / high, 1 / low) };
  if (verdict === 'faster')
    return { said: `${factor(speedup)} faster`, interval: range(low, high) };
  return { said: verdict || 'too few rounds', interval: range(low, high) };
}

/** After how many steps a longer first step is paid back. */
export function paysBack({ verdict, break_even: steps }: ComparedArm): string {
  if (verdict !== 'faster' || Number.isNaN(steps)) return NONE;
  if (steps < 0) return 'never';
  return steps > 0 ? `after ${shortCount(Math.ceil(steps))} steps` : 'at once';
}

/** `1, 2 breaks`. */
export function graphs({ graphs: count, breaks }: ComparedArm): string {
  if (count <= 0) return NONE;
  return breaks > 0 ? `${formatCount(count)}, ${plural(breaks, 'break')}` : formatCount(count);
}

/** `341 MiB`. */
export function mebibytes(bytes: number): string {
  return Number.isNaN(bytes) ? NONE : `${formatCount(bytes / 2 ** 20)} MiB`;
}

/** One digit and its power of ten: `3e-3`. */
export function power(value: number): string {
  if (Number.isNaN(value)) return NONE;
  if (!Number.isFinite(value)) return 'not finite';
  return value === 0 ? '0' : value.toExponential(0).replace('e+', 'e');
}

/** `99.8%`. */
export function share(value: number): string {
  return Number.isNaN(value) ? NONE : `${(100 * value).toFixed(1)}%`;
}

/** A count; -1 is one that was not taken. */
export function known(count: number): string {
  return Number.isNaN(count) || count < 0 ? NONE : formatCount(count);
}

/** Which combination to train a model with, as far as the spread supports any. */
export function verdict(record: CompareRecord, model: string): string {
  const [base, ...others] = variantsOf(record, model).map(({ variant }) => variant);
  if (!base) return 'Nothing was compared.';
  if (Number.isNaN(base.step_s)) {
    const why = base.problem || 'no round was completed';
    return `The baseline ${base.modes} could not be measured: ${why}`;
  }
  const faster = others
    .filter((variant) => variant.verdict === 'faster')
    .sort((a, b) => b.speedup - a.speedup);
  const best = faster[0];
  const open = others.filter((variant) => variant.verdict === 'unclear').map(({ modes }) => modes);
  if (!best) {
    if (!others.some((variant) => variant.verdict !== ''))
      return `Nothing was measured well enough to compare with ${base.modes}.`;
    const ties = others.filter((variant) => variant.verdict === 'tie').map(({ modes }) => modes);
    const equal =
      ties.length > 0
        ? `; ${listed(ties)} ${ties.length > 1 ? 'are' : 'is'} as fast within ${percent(record.equal_within)}`
        : '';
    const said = `Nothing was found to be faster than ${base.modes} here${equal}`;
    return open.length > 0 ? `${said}; the spread leaves ${listed(open)} open.` : `${said}.`;
  }
  const rivals = others.filter(
    (variant) =>
      variant !== best &&
      (variant.verdict === 'faster' || variant.verdict === 'unclear') &&
      variant.speedup_high >= best.speedup_low,
  );
  const paid = paysBack(best);
  const parts = [`${best.modes} is ${factor(best.speedup)} faster than ${base.modes}`];
  if (paid.startsWith('after')) parts[0] += `, its first step paid back ${paid}`;
  if (rivals.length > 0) {
    parts.push(`${listed(rivals.map(({ modes }) => modes))} cannot be distinguished from it`);
  }
  if (best.agreement < 1) parts.push(`${share(best.agreement)} of the answers stay the same`);
  return `${parts.join('; ')}.`;
}

/** How it was measured, a sentence a line. */
export function footing(record: CompareRecord): string[] {
  const begun = record.cancelled ? 'Cancelled after' : 'Measured in';
  const most = record.block_round.reduce((last, round) => Math.max(last, round), -1) + 1;
  const further =
    record.rounds > 0 && most > record.rounds + 1
      ? ` (${most} where that left a variant unclear)`
      : '';
  const lines = [
    `${begun} ${plural(record.rounds, 'round')}${further} on ${record.device}, ${plural(record.threads, 'CPU thread')} ` +
      `per variant, torch ${record.torch_version}: every variant in its own processes, all from the same ` +
      'weights and the same order of batches, one block of steps each in random order in every ' +
      'round. Speed: middle of the rounds’ ratios with its 99 % interval; step: median with quartiles.',
    `A tie is known to differ by less than ${percent(record.equal_within)} (two one-sided tests at ` +
      '2.5 %); faster and slower are known to differ; unclear is what the rounds support neither of.',
  ];
  if (record.parity_samples > 0)
    lines.push(
      `Logits are of ${plural(record.parity_samples, 'sample')} of the ${record.parity_on} data, ` +
        'with the weights at the start; losses of the first steps.',
    );
  return [...lines, ...record.notes];
}

/** `Comparison of modes: early-exit`, or of how many models. */
export function heading(record: CompareRecord): string {
  const models = modelsOf(record);
  return models.length > 1
    ? `Comparison of modes: ${plural(models.length, 'model')}`
    : `Comparison of modes: ${record.title}`;
}

/** `3 %`, `0.5 %`. */
function percent(share: number): string {
  return `${Number((100 * share).toPrecision(3))} %`;
}

function listed(names: readonly string[]): string {
  const last = names.at(-1) ?? '';
  return names.length > 1 ? `${names.slice(0, -1).join(', ')} and ${last}` : last;
}

function range(low: number, high: number): string {
  return `${low.toFixed(2)} – ${high.toFixed(2)}`;
}

function shortCount(count: number): string {
  if (count < 1000) return String(count);
  return count < 999_500 ? `${three(count / 1e3)}k` : `${three(count / 1e6)}M`;
}

function three(value: number): string {
  return value >= 99.95 ? formatCount(value) : value.toFixed(value < 9.995 ? 2 : 1);
}
