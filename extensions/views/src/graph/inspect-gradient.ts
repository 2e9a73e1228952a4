/** What backward brought: the gradient of an operation's output, and of its parameters. */
import { facts, h, note, section } from './dom';
import { formatCount, formatNumber, formatShare, oneLine } from './format';
import type { Gradient } from './gradients';
import { histogram } from './histogram';
import { table } from './inspector';
import type { Leaf, Operation } from './operations';
import type { GraphState } from './state';

const MOST_SHOWN = 8;

/** Norm, largest value, zeros and non-finite values, in words where there is none. */
export function gradientFacts(gradient: Gradient | null): [string, string][] {
  if (!gradient) return [['Norm', 'backward did not run here']];
  return [
    ['Norm', formatNumber(gradient.norm)],
    ['Largest', formatNumber(gradient.largest)],
    ['Zeros', formatShare(gradient.zeros)],
    ['Non-finite', gradient.nonFinite > 0 ? `⚠ ${formatCount(gradient.nonFinite)}` : '0'],
  ];
}

/** The sections on an operation's output and its parameters. */
export function gradientSection(state: GraphState, item: Operation): HTMLElement {
  const { record } = state;
  if (!record.gradients) {
    const reason = note(state.missing('gradient'));
    return section('Gradient of the output', '', reason);
  }
  const step = record.step === null ? '' : `step ${formatCount(record.step)}`;
  return outputSection(state, item, step);
}

/**
 * What backward brought to the output of an operation: figures, and the distribution of its values.
 */
export function outputSection(
  { record }: GraphState,
  item: Operation | undefined,
  step = '',
): HTMLElement {
  const list = facts(gradientFacts(item?.gradient ?? null));
  const bars = histogram(record, item?.rows[item.rows.length - 1] ?? -1);
  return section('Gradient of the output', step, list, ...(bars ? [bars] : []));
}

/** The distribution of the gradients of parameters, to be opened; null where none was measured. */
function histograms({ record }: GraphState, leaves: readonly Leaf[]): HTMLElement | null {
  const parts = leaves.slice(0, MOST_SHOWN).flatMap(({ name, shape, row }) => {
    const bars = histogram(record, row);
    return bars ? [note(`${name.split('.').pop() ?? name} ${shape}`), bars] : [];
  });
  if (parts.length === 0) return null;
  return h('details', {}, h('summary', {}, 'Gradients by magnitude'), ...parts);
}

/** Shape, and what backward gave each parameter. */
export function parameterTable(state: GraphState, leaves: readonly Leaf[], bytes: Bytes): Node {
  const { gradients } = state.record;
  const headings = ['Name', 'Shape', 'Bytes', ...(gradients ? ['Gradient norm'] : [])];
  const rows = leaves.map((leaf) => [
    { text: oneLine(leaf.name.split('.').pop() ?? leaf.name), title: leaf.name },
    leaf.shape,
    bytes(leaf.bytes),
    ...(gradients ? [leafNorm(leaf.gradient)] : []),
  ]);
  const bars = histograms(state, leaves);
  return h('div', {}, table(headings, rows), ...(bars ? [bars] : []));
}

type Bytes = (bytes: number) => string;

function leafNorm(gradient: Gradient | null): string {
  if (!gradient) return 'none';
  return gradient.nonFinite > 0
    ? `⚠ ${formatCount(gradient.nonFinite)} non-finite`
    : formatNumber(gradient.norm);
}
