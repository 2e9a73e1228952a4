/**
 * The distribution of the values of a gradient over the powers of ten: bars over a logarithmic
 * axis.
 */
import type { GraphColumns } from './columns';
import { h } from './dom';
import { formatShare } from './format';

/** Pixels that a label of the axis takes, and those that the bars have together. */
const LABEL = 38;
const WIDTH = 300;

/** Bars of the gradient that reached a row; null where it has none. */
export function histogram(record: GraphColumns, row: number): HTMLElement | null {
  const found = binsOf(record, row);
  const powers = [...found.keys()];
  const [low, high] = [Math.min(...powers), Math.max(...powers)];
  if (powers.length === 0) return null;
  const most = Math.max(...found.values());
  const count = high - low + 1;
  const every = Math.ceil((count * LABEL) / WIDTH);
  const bars = h('div', 'bars');
  const axis = h('div', 'axis');
  const said: string[] = [];
  for (let power = low; power <= high; power += 1) {
    const share = found.get(power) ?? 0;
    const range = `${ten(power)} to ${ten(power + 1)}: ${formatShare(share)}`;
    if (share > 0) said.push(range);
    const height = share > 0 ? `height:max(1px,${((share / most) * 100).toFixed(1)}%)` : 'height:0';
    bars.append(h('i', { style: height, title: range }));
    const at = power - low;
    const fits = at % every === 0 && ((count - at) * WIDTH) / count >= LABEL;
    axis.append(h('span', {}, fits || at === 0 ? ten(power) : ''));
  }
  const label = `Share of the values by magnitude. ${said.join('; ')}`;
  return h('div', { class: 'wv-hist', role: 'img', 'aria-label': label }, bars, axis);
}

/** Power of ten -> share; `bin_node` is ascending. */
export function binsOf(
  { bin_node: nodes, bin_power: power, bin_share: share }: GraphColumns,
  row: number,
): Map<number, number> {
  let [low, high] = [0, nodes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (nodes[middle] < row) low = middle + 1;
    else high = middle;
  }
  const found = new Map<number, number>();
  for (; nodes[low] === row; low += 1) found.set(power[low], share[low]);
  return found;
}

function ten(power: number): string {
  return `1e${power}`.replace('-', '−');
}
