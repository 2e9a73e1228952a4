/** The strip as a table: every module, its value at one step, and what it was over all of them. */
import { h } from '../graph/dom';
import { formatCount, formatNumber, shorten } from '../graph/format';
import { readingAt, type FlowColumns } from './strip';
import { readingText, stepsText, summaryOf } from './words';

export function flowTable(record: FlowColumns, column: number): HTMLElement {
  const step = formatCount(record.step[column] ?? 0);
  const heads = ['Module', 'Parameters', `At step ${step}`, 'Smallest', 'Median', 'Largest'];
  heads.push('No gradient', 'Not finite');
  const rows = record.rows.map((row, at) => {
    const found = summaryOf(record, at);
    const number = (value: number): string => (Number.isNaN(value) ? '–' : formatNumber(value));
    const cells = [
      formatCount(row.num_parameters),
      readingText(readingAt(record, at, column)),
      number(found.smallest),
      number(found.median),
      number(found.largest),
      found.missing ? `${formatCount(found.missing)} of ${formatCount(found.sampled)} steps` : '–',
      found.infinite ? formatCount(found.infinite) : '–',
    ];
    const name = shorten(row.label, 60);
    const head = h('th', { scope: 'row', title: shorten(`${row.label} (${row.cls})`, 300) }, name);
    return h('tr', {}, head, ...cells.map((text) => h('td', {}, text)));
  });
  const caption = `L2 norm of all parameter gradients of a module, ${stepsText(record)}.`;
  return h(
    'table',
    {},
    h('caption', { class: 'wv-sr' }, caption),
    h('thead', {}, h('tr', {}, ...heads.map((text) => h('th', { scope: 'col' }, text)))),
    h('tbody', {}, ...rows),
  );
}
