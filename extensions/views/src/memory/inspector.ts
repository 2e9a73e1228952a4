/** The inspector while no block is chosen: the capture, and what is live at the scrubber. */
import { facts, h, section } from '../graph/dom';
import { formatBytes, formatCount, oneLine, shorten } from '../graph/format';
import { composition } from './sentence';
import { categoryLabel, timeAt, type MemoryColumns, type Series } from './series';
import { swatch } from './tables';

/** Fills the inspector for the capture and the composition at the scrubber. */
export function inspectCapture(
  element: HTMLElement,
  record: MemoryColumns,
  series: Series,
  position: number,
): void {
  const title = record.title || 'Memory';
  const rows: [string, string][] = [];
  if (record.step !== null) rows.push(['Step', formatCount(record.step)]);
  rows.push(['Device', oneLine(record.device)]);
  rows.push(['Peak', `${formatBytes(record.peak_bytes)} · ${formatCount(record.peak_bytes)} B`]);
  if (record.reserved_bytes >= 0) rows.push(['Reserved', formatBytes(record.reserved_bytes)]);
  rows.push(['Events', formatCount(record.event_time_us.length)]);
  rows.push(['Blocks', formatCount(record.block_start.length)]);
  rows.push(['Duration', `${timeAt(record, series.length - 1).toFixed(1)} ms`]);
  const total = Math.max(1, series.total[position] ?? 0);
  const parts = composition(series, position)
    .filter(({ bytes }) => bytes > 0)
    .reverse();
  const body = h('tbody', {});
  for (const { category, bytes } of parts)
    body.append(
      h(
        'tr',
        { title: categoryLabel(category) },
        h('td', {}, swatch(category)),
        h('td', {}, formatBytes(bytes)),
        h('td', {}, `${((100 * bytes) / total).toFixed(1)} %`),
      ),
    );
  element.replaceChildren(
    h(
      'section',
      { class: 'wv-sec' },
      h('h2', { title: shorten(title, 1000) }, shorten(title, 120)),
    ),
    section('Capture', '', facts(rows)),
    section('At the scrubber', formatBytes(series.total[position] ?? 0), h('table', {}, body)),
    section('How it was measured', '', h('p', {}, oneLine(record.basis.slice(0, 1000)))),
  );
  if (record.notes.length > 0) {
    const notes = record.notes.map((text) => h('li', {}, oneLine(text.slice(0, 600))));
    element.append(section('Notes', '', h('ul', {}, ...notes)));
  }
}
