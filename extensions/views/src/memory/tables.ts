/** The tables: who holds memory at the scrubber, and the chart's numbers phase by phase. */
import { h, sourceLabel } from '../graph/dom';
import { formatBytes, formatCount, shorten } from '../graph/format';
import { moduleOf, titleOf, type Holders } from './blocks';
import { CATEGORIES, categoryLabel, timeAt, type MemoryColumns, type Series } from './series';

/** A coloured square and the category's name: never colour alone. */
export function swatch(category: number): HTMLElement {
  const name = CATEGORIES[category] ?? 'unknown';
  const square = h('i', {
    class: 'wv-swatch',
    style: `background:var(--wb-c-${name});border-color:var(--wb-o-${name})`,
  });
  return h('span', { class: 'wv-category' }, square, categoryLabel(category));
}

const HEADINGS = ['Block', 'Module', 'Category', 'Size', 'Share', 'Source', 'Lifetime'];

/** Rows for the largest holders; `onSelect` gets the block. */
export function holdersTable(
  record: MemoryColumns,
  holders: Holders,
  position: number,
  total: number,
  selected: number | null,
  onSelect: (block: number) => void,
): HTMLElement {
  const body = h('tbody', {});
  for (const block of holders.blocks) {
    const row = holderRow(record, block, position, total, block === selected);
    row.addEventListener('click', () => onSelect(block));
    row.addEventListener('keydown', (event) => {
      const next = event.key === 'ArrowDown' ? row.nextElementSibling : row.previousElementSibling;
      if (event.key === 'Enter' || event.key === ' ') onSelect(block);
      else if (
        (event.key === 'ArrowDown' || event.key === 'ArrowUp') &&
        next instanceof HTMLElement
      )
        next.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    body.append(row);
  }
  const head = h('tr', {}, ...HEADINGS.map((text) => h('th', { scope: 'col' }, text)));
  const table = h('table', { class: 'wv-holders' }, h('thead', {}, head), body);
  if (holders.count > holders.blocks.length) {
    const rest = `${formatCount(holders.count - holders.blocks.length)} smaller blocks are not listed; search to find them.`;
    body.append(h('tr', {}, h('td', { colspan: HEADINGS.length, class: 'wv-note' }, rest)));
  }
  return table;
}

function holderRow(
  record: MemoryColumns,
  block: number,
  position: number,
  total: number,
  selected: boolean,
): HTMLElement {
  const bytes = record.block_bytes[block] ?? 0;
  const title = titleOf(record, block);
  const module = moduleOf(record, block);
  const source = record.sources[record.block_source[block] ?? -1];
  const where = source ? sourceLabel(source) : '';
  return h(
    'tr',
    { tabindex: 0, 'aria-selected': String(selected), 'data-block': block },
    h('td', { title: shorten(title, 300) }, shorten(title, 48)),
    h('td', { title: shorten(module, 300) }, shorten(module, 36)),
    h('td', {}, swatch(record.block_category[block] ?? 6)),
    h('td', { title: `${formatCount(bytes)} B` }, formatBytes(bytes)),
    h('td', {}, `${((100 * bytes) / Math.max(1, total)).toFixed(1)} %`),
    h('td', { title: shorten(where, 300) }, shorten(where, 32)),
    h('td', {}, lifetime(record, block, position)),
  );
}

/** A bar over the whole recording: when the block lived, and where the scrubber stands. */
export function lifetime(
  record: MemoryColumns,
  block: number,
  position: number,
  clock = false,
): HTMLElement {
  const last = record.event_time_us.length;
  const start = record.block_start[block] ?? -1;
  const freed = record.block_end[block] ?? -1;
  const part = (at: number): number =>
    100 *
    (clock ? timeAt(record, at) / Math.max(1e-9, timeAt(record, last)) : at / Math.max(1, last));
  const name = CATEGORIES[record.block_category[block] ?? 6] ?? 'unknown';
  const left = Math.min(98.5, part(start + 1) - (start < 0 ? part(start + 1) : 0));
  const width = Math.max(1.5, (freed < 0 ? 100 : part(freed + 1)) - left);
  const from = start < 0 ? 'before recording' : `event ${formatCount(start)}`;
  const until = freed < 0 ? 'still there at the end' : `freed at event ${formatCount(freed)}`;
  const said = `${from}, ${until}`;
  const bar = h('i', {
    style: `left:${left}%;width:${Math.min(width, 100 - left)}%;background:var(--wb-c-${name})`,
  });
  const mark = h('b', { style: `left:${part(position)}%` });
  return h('span', { class: 'wv-life', role: 'img', 'aria-label': said, title: said }, bar, mark);
}

/** The chart as numbers: the largest moment of every phase, by category. */
export function phaseTable(record: MemoryColumns, series: Series): HTMLElement {
  const whole = { name: 'whole recording', start: 0, end: record.event_time_us.length };
  const head = h('tr', {}, h('th', { scope: 'col' }, 'Largest moment of'));
  for (const text of [
    'Event',
    'Time',
    ...CATEGORIES.map((_, category) => categoryLabel(category)),
    'Total',
  ])
    head.append(h('th', { scope: 'col' }, text));
  const body = h('tbody', {});
  for (const phase of [...record.phases, whole]) {
    let best = Math.min(phase.start, series.length - 1);
    for (let at = phase.start; at <= phase.end && at < series.length; at += 1)
      if ((series.total[at] ?? 0) > (series.total[best] ?? 0)) best = at;
    const row = h('tr', {}, h('th', { scope: 'row' }, shorten(phase.name, 60)));
    row.append(
      h('td', {}, formatCount(best)),
      h('td', {}, `${timeAt(record, best).toFixed(1)} ms`),
    );
    for (const values of series.live) row.append(h('td', {}, formatBytes(values?.[best] ?? 0)));
    row.append(h('td', {}, h('b', {}, formatBytes(series.total[best] ?? 0))));
    body.append(row);
  }
  const caption = h('caption', {}, 'Live bytes by category, at the largest moment of each phase');
  return h('table', { class: 'wv-phases' }, caption, h('thead', {}, head), body);
}
