/** The inspector's page for the whole diff: the cause, the totals, and every change as a link. */
import { aside, h, note, section, sourceSection } from '../graph/dom';
import { formatCount, formatNumber, oneLine, plural, shorten } from '../graph/format';
import { size, type Item } from '../graph/groups';
import { itemLink, table, type Cell } from '../graph/inspector';
import type { Operation } from '../graph/operations';
import { nameOf } from '../graph/tree-panel';
import type { GraphView } from '../graph/view';
import { SIGNS } from './change';
import { parametersOf } from './parameters';
import type { DiffState } from './state';
import { totalsOf } from './totals';
import { bytesArrow, detailOf, growthText, signedBytes } from './words';

type View = GraphView<DiffState>;
type Marked = 'removed' | 'added' | 'changed';

const MOST = 12;
const TITLES: Record<Marked, string> = { removed: 'Removed', added: 'Added', changed: 'Changed' };

export function inspectDiff(view: View, state: DiffState): Node[] {
  const { diff, record } = state;
  const parts: Node[] = [
    h(
      'section',
      'wv-sec wv-sentence',
      h('div', 'wv-note', shorten(record.title, 120)),
      h('p', {}, ...withCode(oneLine(diff.sentence.slice(0, 1000)))),
    ),
    section('Totals', '', table(['', 'A', 'B', 'B − A'], totalsOf(diff))),
  ];
  const cause = record.sources[diff.cause_source];
  if (diff.cause_source >= 0 && cause) {
    const part = sourceSection(cause);
    part.querySelector('h3')?.firstChild?.replaceWith('Why');
    parts.push(part);
  }
  for (const kind of ['removed', 'added', 'changed'] as const) {
    const list = changes(view, state, state.tree.root, kind);
    if (list) parts.push(list);
  }
  const gradients = beyond(view, state);
  if (gradients) parts.push(gradients);
  const unknown = [...record.notes];
  const regions = state.operations.filter(({ compiled }) => compiled).length;
  if (regions > 0)
    unknown.push(`what ${plural(regions, 'compiled node')} ran inside: not compared`);
  if (unknown.length > 0) {
    const notes = unknown.map((text) => h('li', {}, oneLine(text.slice(0, 600))));
    parts.push(section('What these captures could not know', '', h('ul', {}, ...notes)));
  }
  return parts;
}

/** What stands between backticks is code. */
function withCode(text: string): (Node | string)[] {
  return text.split('`').map((part, at) => (at % 2 ? h('code', {}, part) : part));
}

/** The changes of one kind within a group, each as a link; null where there are none. */
export function changes(view: View, state: DiffState, within: Item, kind: Marked): Node | null {
  const count = state.index.count(within, kind);
  if (count === 0) return null;
  const stops = state.stops.filter(
    (stop) => stop !== within && isWithin(stop, within) && state.index.count(stop, kind) > 0,
  );
  if (stops.length === 0) return null;
  const rows = stops.slice(0, MOST).map((stop): (string | Cell)[] => {
    const name = itemLink(stop, view.show, 18);
    const where = state.path(stop).slice(1).map(nameOf).join(' › ');
    const mark = h('i', { class: `sign ${kind}`, 'aria-hidden': 'true' }, SIGNS[kind]);
    const title = [where, nameOf(stop)].filter(Boolean).join(' › ');
    return [{ node: h('span', {}, mark, ' ', name), title }, whereOf(where), whatOf(state, stop)];
  });
  const parts: Node[] = [table([], rows)];
  if (stops.length > MOST) parts.push(note(`and ${plural(stops.length - MOST, 'more change')}`));
  const parameters = parametersOf(state, within)[kind];
  const also = parameters > 0 ? `, ${plural(parameters, 'parameter')}` : '';
  return section(TITLES[kind], plural(count, 'operation') + also, ...parts);
}

function isWithin(stop: Item, group: Item): boolean {
  if (group.kind === 'operation') return stop === group;
  const [start, end] = stop.kind === 'operation' ? [stop.id, stop.id + 1] : [stop.start, stop.end];
  return start >= group.start && end <= group.end;
}

function whereOf(where: string): Cell {
  return { text: shorten(where, 20), title: where };
}

function whatOf(state: DiffState, item: Item): string {
  const { a, b } = state.index.saved(item);
  if (item.kind !== 'operation') return `${plural(size(item), 'op')}, ${signedBytes(b - a)}`;
  const change = state.index.of(item.id);
  if (change.state !== 'changed') return signedBytes(b - a);
  return detailOf(change) || bytesArrow(a, b);
}

function dim(text: string): HTMLElement {
  return aside(text);
}

function moduleOf({ record }: DiffState, { module }: Operation): string {
  return shorten(record.modules[module]?.path ?? '', 20);
}

/** Operations whose gradient changed by more than `BEYOND`, the largest change first. */
function beyond(view: View, state: DiffState): Node | null {
  if (!state.record.gradients) return null;
  const { index } = state;
  const found = state.operations
    .filter(({ id }) => index.fits(id, 'gradient'))
    .map((item) => ({ item, change: index.of(item.id) }))
    .sort((x, y) => Math.abs(y.change.growth) - Math.abs(x.change.growth));
  const count = `${found.length} of ${formatCount(index.numMeasured)} shared`;
  const norm = (value: number | null | undefined): string => formatNumber(value ?? NaN);
  const rows = found.slice(0, MOST).map(({ item, change }): (string | Cell)[] => [
    {
      node: h('span', {}, itemLink(item, view.show, 16), ' ', dim(moduleOf(state, item))),
      title: state.path(item).map(nameOf).join(' › '),
    },
    norm(change.a?.norm),
    norm(change.b?.norm),
    growthText(change),
  ]);
  const parts: Node[] =
    rows.length > 0
      ? [table(['Operation', 'A', 'B', 'B / A'], rows)]
      : [note('No gradient changed that much.')];
  if (found.length > MOST) parts.push(note(`and ${found.length - MOST} more`));
  return section('Gradient beyond × 3', count, ...parts);
}
