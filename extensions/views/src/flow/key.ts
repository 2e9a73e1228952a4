/** The strip's legend: only the signs that occur in it. */
import { h } from '../graph/dom';
import { formatNumber } from '../graph/format';
import { LEVELS, limitsOf, partialRows, reduce, type FlowColumns } from './strip';

export function keyOf(record: FlowColumns, captured: boolean): HTMLElement {
  const ramp = h('div', { class: 'wv-ramp', 'aria-hidden': 'true' });
  for (let level = 0; level < LEVELS; level += 1)
    ramp.append(h('i', { style: `background:var(--wb-s${level})` }));
  const limits = limitsOf(record)?.map((norm) => h('span', {}, formatNumber(norm)));
  const scale = limits && [ramp, h('div', { class: 'wv-ends' }, ...limits)];
  const none = h('p', {}, 'No norm is finite and above zero.');
  const key = h(
    'div',
    { class: 'wv-key' },
    h('b', {}, 'Gradient norm (log)'),
    ...(scale ?? [none]),
  );
  const values = Array.from(record.norm);
  const sign = (kind: string, mark: string, text: string): void =>
    key.append(h('p', {}, h('span', { class: kind, 'aria-hidden': 'true' }, mark), text));
  if (values.some(Number.isNaN)) sign('none', '', 'no gradient: did not run');
  if (partialRows(reduce(record, Infinity)).length > 0) sign('', '▼', 'a module was left out');
  if (values.includes(0)) sign('zero', '0', 'gradient is 0');
  if (values.includes(Infinity)) sign('bad', '✕', 'not finite');
  if (captured) sign('captured', '', 'captured step');
  return key;
}
