/** The inspector while no block is chosen: the capture, and what is live at the scrubber. */
import { facts, h, renew, section } from '../graph/dom';
import { formatBytes, formatCount, oneLine, shorten } from '../graph/format';
import { composition } from './sentence';
import type { Model } from './model';
import { categoryLabel, timeAt, type MemoryColumns } from './series';
import { settingsOf } from './settings';
import { swatch } from './tables';

/** Fills the inspector for the capture and the composition at the scrubber. */
export function inspectCapture(
  element: HTMLElement,
  { record, series, view: { scrubber: position } }: Model,
): void {
  const title = record.title || 'Memory';
  const rows: [string, string][] = [];
  if (record.step !== null) rows.push(['Step', formatCount(record.step)]);
  rows.push(['Device', oneLine(record.device)]);
  rows.push(['Peak', `${formatBytes(record.peak_bytes)} · ${formatCount(record.peak_bytes)} B`]);
  if (record.reserved_bytes >= 0) rows.push(['Reserved', formatBytes(record.reserved_bytes)]);
  const settings = record.is_predicted ? '' : settingsOf(record);
  if (settings) rows.push(['Settings', shorten(oneLine(settings), 200)]);
  rows.push(['Events', formatCount(record.event_time_us.length)]);
  rows.push(['Blocks', formatCount(record.block_start.length)]);
  const first = (record.event_time_us[0] ?? 0) / 1000;
  const took = `${(timeAt(record, series.length - 1) - first).toFixed(1)} ms`;
  rows.push(record.is_predicted ? ['Worked out in', took] : ['Duration', took]);
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
  renew(element, [
    h(
      'section',
      { class: 'wv-sec' },
      h('h2', { title: shorten(title, 1000) }, shorten(title, 120)),
    ),
    section('Capture', '', facts(rows)),
    ...predictionPart(record),
    section('At the scrubber', formatBytes(series.total[position] ?? 0), h('table', {}, body)),
    section(
      record.is_predicted ? 'How it was predicted' : 'How it was measured',
      '',
      h('p', {}, oneLine(record.basis.slice(0, 1000))),
    ),
  ]);
  if (record.notes.length > 0) {
    const notes = record.notes.map((text) => h('li', {}, oneLine(text.slice(0, 600))));
    element.append(section('Notes', '', h('ul', {}, ...notes)));
  }
}

/** On which GPU it is predicted, the bounds of the peak, and why it may be off. */
export function predictionPart(record: MemoryColumns): HTMLElement[] {
  if (!record.is_predicted) return [];
  const [low = -1, high = -1] = record.peak_interval;
  const rows: [string, string][] = [];
  if (record.card) rows.push(['GPU', oneLine(record.card)]);
  if (record.card_bytes >= 0) rows.push(['Usable of it', formatBytes(record.card_bytes)]);
  rows.push(['Settings', oneLine(record.settings) || 'default']);
  if (high >= 0) rows.push(['Reserved at most', interval(low, high)]);
  const parts: Node[] = [facts(rows)];
  const reasons = record.reasons.map((text) => h('li', {}, oneLine(text.slice(0, 600))));
  if (reasons.length > 0) parts.push(h('p', { class: 'wv-lead' }, 'It may be off because:'));
  if (reasons.length > 0) parts.push(h('ul', {}, ...reasons));
  const part = section('Prediction', 'not measured', ...parts);
  part.classList.add('wv-prediction');
  return [part];
}

/** `20.0 to 24.0 MiB`, or what both are. */
function interval(low: number, high: number): string {
  return low === high ? formatBytes(high) : `${formatBytes(low)} to ${formatBytes(high)}`;
}
