/** Everything known about the selected block, or about the capture when none is selected. */
import { facts, h, section, sourceCard } from '../graph/dom';
import { formatBytes, formatCount, oneLine, shorten } from '../graph/format';
import { addressOf, moduleOf, opOf, titleOf } from './blocks';
import { composition } from './sentence';
import { categoryLabel, phaseAt, timeAt, type MemoryColumns, type Series } from './series';
import { lifetime, swatch } from './tables';

/** Fills the inspector for a block. */
export function inspectBlock(
  element: HTMLElement,
  record: MemoryColumns,
  block: number,
  position: number,
): void {
  const title = titleOf(record, block);
  const bytes = record.block_bytes[block] ?? 0;
  const module = moduleOf(record, block);
  element.replaceChildren(
    h(
      'section',
      { class: 'wv-sec' },
      h('div', { class: 'wv-note', style: 'overflow-wrap:anywhere' }, shorten(module, 160)),
      h('h2', { title: shorten(title, 1000) }, shorten(title, 120)),
      swatch(record.block_category[block] ?? 6),
    ),
  );
  const rows: [string, string][] = [
    ['Size', formatBytes(bytes)],
    ['Exactly', `${formatCount(bytes)} B`],
    ['Address', addressOf(record, block) || `not recorded on ${record.device}`],
  ];
  element.append(section('Block', '', facts(rows)), lifetimeOf(record, block, position));
  const source = record.sources[record.block_source[block] ?? -1];
  if (source) element.append(sourceCard(source));
  const made: [string, string][] = [
    ['Operation', oneLine(opOf(record, block).slice(0, 300)) || 'unknown'],
  ];
  if (module) made.push(['Module', oneLine(module.slice(0, 300))]);
  element.append(section('Allocated by', '', facts(made)));
}

function lifetimeOf(record: MemoryColumns, block: number, position: number): HTMLElement {
  const start = record.block_start[block] ?? -1;
  const end = record.block_end[block] ?? -1;
  const moment = (event: number): string => {
    const phase = phaseAt(record, event);
    return `event ${formatCount(event)} · ${timeAt(record, event + 1).toFixed(1)} ms${phase ? ` · ${oneLine(phase)}` : ''}`;
  };
  const rows: [string, string][] = [
    ['Allocated', start < 0 ? 'before recording began' : moment(start)],
    ['Freed', end < 0 ? 'not in this recording' : moment(end)],
  ];
  if (start >= 0 && end >= 0) {
    const lived = timeAt(record, end + 1) - timeAt(record, start + 1);
    rows.push(['Lived', `${formatCount(end - start)} events · ${lived.toFixed(1)} ms`]);
  }
  return section('Lifetime', '', facts(rows), lifetime(record, block, position));
}

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
