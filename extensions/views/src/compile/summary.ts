/** What compiling came to: counts, the time by phase as one bar, and what the caches had. */
import { h } from '../dom';
import { formatCount, formatShare, plural } from '../graph/format';
import { icon } from '../icons';
import type { Report } from './report';
import { phaseNames, seconds } from './words';

/** Of the bar, the least that a phase's own name fits into. */
const NAMED = 0.14;
/** Switches between modes that are listed; a training has few. */
const MOST_SWITCHES = 6;

export function summary(report: Report): HTMLElement[] {
  const parts = [figures(report), phases(report), ...switches(report)];
  const notes = report.record.notes.map((note) => h('p', { class: 'wv-note' }, `Note: ${note}`));
  return [...parts, ...notes];
}

function figures({ record, numGraphs, caches }: Report): HTMLElement {
  const breaks = record.breaks.length;
  const figure = (count: number, one: string, bad: boolean): HTMLElement =>
    h(
      'span',
      { role: 'listitem', class: bad ? 'wv-figure wv-warn' : 'wv-figure' },
      bad ? icon('warning', 12) : null,
      h('b', {}, formatCount(count)),
      plural(count, one).replace(/^\S+/, ''),
    );
  const all = [
    figure(record.regions.length, 'region', false),
    figure(numGraphs, 'graph', false),
    figure(breaks, 'graph break', breaks > 0),
    figure(record.recompiles.length, 'recompile', record.recompiles.length > 0),
    figure(record.kernels.length, 'kernel', false),
  ];
  const found = caches.map(
    ({ name, hits, lookups }) => `${name} ${formatCount(hits)} of ${formatCount(lookups)}`,
  );
  const title = 'Look-ups that found what an earlier compilation had left on disk';
  const cached = h('span', { class: 'wv-cached', title }, `From caches: ${found.join(', ')}`);
  const list = h('div', { class: 'wv-figures', role: 'list', 'aria-label': 'Counts' }, ...all);
  return h('div', { class: 'wv-line' }, list, found.length > 0 ? cached : null);
}

function phases(report: Report): HTMLElement {
  const names = phaseNames(report.record);
  const total = report.totalSeconds;
  const segments = report.seconds.map((time, at) => {
    const share = total > 0 ? time / total : 0;
    const said = `${names[at] ?? ''} ${seconds(time)}, ${formatShare(share)}`;
    const style = `flex-grow:${share.toFixed(5)}`;
    const label = share >= NAMED ? h('span', {}, names[at] ?? '') : null;
    return h('i', { class: `wv-phase wv-p${at}`, style, title: said, hidden: share === 0 }, label);
  });
  const said = `Compiling took ${seconds(total)}`;
  const bar = h('div', { class: 'wv-phases', 'aria-hidden': 'true' }, ...segments);
  const keys = report.seconds.map((time, at) =>
    h(
      'span',
      { role: 'listitem' },
      h('i', { class: `wv-key wv-p${at}`, 'aria-hidden': 'true' }),
      `${names[at] ?? ''} `,
      h('b', {}, seconds(time)),
    ),
  );
  const legend = h('div', { class: 'wv-keys', role: 'list', 'aria-label': said }, ...keys);
  const head = h(
    'div',
    { class: 'wv-line' },
    h('span', {}, 'Compiled in ', h('b', {}, seconds(total))),
  );
  head.append(legend);
  return h('div', { class: 'wv-time' }, head, bar);
}

/** What each part of a training compiled, where its modes were switched. */
function switches({ record }: Report): HTMLElement[] {
  let seen = false;
  const lines: string[] = [];
  record.switches.forEach(({ step, modes, compiled, num_compilations: count }, at) => {
    const from = `From step ${formatCount(step)} with ${modes}`;
    if (compiled && count > 0) lines.push(`${from}: ${plural(count, 'compilation')}`);
    else if (compiled)
      lines.push(
        `${from}: ${seen ? 'nothing compiled, what there was is used again' : 'nothing compiled yet'}`,
      );
    else if (at > 0 && seen) lines.push(`${from}: not compiled`);
    seen ||= compiled && count > 0;
  });
  if (lines.length < 2) return [];
  const shown = lines.slice(-MOST_SWITCHES).map((line) => h('li', {}, line));
  return [h('ol', { class: 'wv-switches', 'aria-label': 'Switches of modes' }, ...shown)];
}
