/** The controls of a diff: all or changes only, from change to change, and both captures' totals. */
import type { DiffSide } from '@torch-workbench/records';
import { aside, choices, h, press } from '../graph/dom';
import type { Controls } from '../graph/face';
import { formatBytes, formatCount, plural, shorten } from '../graph/format';
import type { GraphView } from '../graph/view';
import { CHANGES, type Filter } from './index-of-changes';
import { DiffState } from './state';
import { castsOf } from './totals';
import { FILTER_TEXTS } from './words';

type View = GraphView<DiffState>;

export function controls(view: View): Controls<DiffState> {
  const which = choices<'all' | 'changes'>(
    'Show',
    [
      { value: 'all', text: 'All' },
      { value: 'changes', text: 'Only changes' },
    ],
    'all',
    (value) => show(view, value === 'changes'),
  );
  const steps = stepper(view);
  const sides = h('div', { class: 'wv-sides', role: 'group', 'aria-label': 'Captures' });
  const chips = CHANGES.map((filter) => chip(view, filter));
  const equal = h('div', { class: 'wv-equal', role: 'status', hidden: true });
  let isRead = false;
  const read = (): void => {
    isRead = true;
    equal.hidden = true;
  };
  const bar = h('div', { class: 'wv-sidebar', hidden: true }, sides, h('span', 'wv-space'));
  const row = h('div', { class: 'wv-chips', role: 'group', 'aria-label': 'Light up' });
  row.append(...chips.map(({ element }) => element));
  bar.append(row);
  let drawn: unknown = null;
  return {
    bar: [which.element, steps.element],
    below: [bar],
    over: [equal],
    update(state) {
      bar.hidden = !state;
      equal.hidden = !state?.index.isEqual || view.table || isRead;
      if (!state) return;
      which.set(state.onlyChanges ? 'changes' : 'all');
      which.allow('changes', state.index.isEqual ? 'Nothing changed.' : '');
      steps.update(state);
      for (const one of chips) one.update(state);
      pressSides(sides, state);
      if (drawn === state.record) return;
      drawn = state.record;
      const { a, b, sentence } = state.diff;
      sides.replaceChildren(
        side(view, 'A', a, state),
        h('span', {}, '→'),
        side(view, 'B', b, state),
      );
      isRead = false;
      const close = h('button', { type: 'button', 'aria-label': 'Close', onclick: read }, '✕');
      equal.replaceChildren(h('b', {}, 'The two graphs are equal'), shorten(sentence, 400), close);
    },
  };
}

/** Draws the diff anew with all of it, or with what changed alone; the selection stays. */
export function show(view: View, onlyChanges: boolean): void {
  const { state } = view;
  if (!state || state.index.isEqual || state.onlyChanges === onlyChanges) return;
  const next = new DiffState(state.diff, { onlyChanges });
  const { selected, query } = state;
  view.use(next);
  if (query) next.search(query);
  if (selected?.kind === 'operation') view.show(next.operations[selected.id] ?? null);
  view.refresh(onlyChanges ? 'Only what changed' : 'All of both captures');
}

function stepper(view: View): { element: HTMLElement; update: (state: DiffState) => void } {
  const place = h('span', { 'aria-live': 'off' });
  const step = (label: string, text: string, backwards: boolean): HTMLElement => {
    const onclick = (): void => view.show(view.state?.nextStop(backwards) ?? null);
    return h('button', { type: 'button', 'aria-label': label, title: label, onclick }, text);
  };
  const element = h('div', { class: 'wv-seg', role: 'group', 'aria-label': 'Changes' });
  element.append(
    step('Previous change (P)', '‹', true),
    place,
    step('Next change (N)', '›', false),
  );
  const update = ({ stops, selected }: DiffState): void => {
    const at = selected ? stops.indexOf(selected) : -1;
    const count = formatCount(stops.length);
    place.textContent =
      at < 0 ? plural(stops.length, 'change') : `${formatCount(at + 1)} of ${count}`;
    for (const button of element.querySelectorAll('button')) button.disabled = stops.length === 0;
  };
  return { element, update };
}

function chip(
  view: View,
  filter: Filter,
): { element: HTMLElement; update: (s: DiffState) => void } {
  const { sign, text, lit } = FILTER_TEXTS[filter];
  const count = h('b', {});
  const mark = h('i', { class: filter, 'aria-hidden': 'true' }, sign);
  const onclick = (): void => light(view, filter);
  const element = h('button', { type: 'button', class: 'wv-btn', onclick }, mark, text, count);
  const update = (state: DiffState): void => {
    const found = state.index.count(state.tree.root, filter);
    count.textContent = formatCount(found);
    element.title = `${lit}: ${plural(found, 'operation')}`;
    element.disabled = found === 0;
    element.hidden = filter === 'gradient' && !state.record.gradients;
    const on = state.highlight !== null && state.filter === filter;
    press(element, on);
  };
  return { element, update };
}

function light(view: View, filter: Filter): void {
  view.state?.light(filter);
  view.refresh(view.state?.litText() || 'All lit');
}

/** Shows which capture is lit alone. */
function pressSides(sides: HTMLElement, { highlight, filter }: DiffState): void {
  for (const button of sides.querySelectorAll('button')) {
    const on = highlight !== null && filter === button.dataset['filter'];
    press(button, on);
  }
}

/** Name and totals of one capture; its letter lights what it has. */
function side(view: View, letter: 'A' | 'B', of: DiffSide, state: DiffState): HTMLElement {
  const totals = [
    plural(of.num_operations, 'node'),
    `${formatBytes(of.saved_bytes)} saved`,
    plural(castsOf(state.diff, letter), 'cast'),
  ].join(' · ');
  const filter = letter === 'A' ? 'a' : 'b';
  const onclick = (): void => light(view, filter);
  const lit = `Light up all that ${letter} has`;
  const attributes = { type: 'button', class: 'letter', 'data-filter': filter, title: lit };
  const button = h('button', { ...attributes, 'aria-label': lit, onclick }, letter);
  const title = `${shorten(of.title, 300)} on ${of.device}, torch ${of.torch_version}`;
  return h(
    'span',
    { class: 'wv-side', title },
    button,
    h('b', {}, shorten(of.title, 40)),
    aside(totals),
  );
}
