/** Graph breaks and recompiles, each with its line, its reason and what may be done. */
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { link, sentence } from '../graph/dom';
import { formatCount, plural } from '../graph/format';
import { icon, type IconName } from '../icons';
import { More } from './more';
import type { Finding, Report } from './report';
import { placeLabel } from './words';

const KINDS: Readonly<Record<Finding['kind'], { label: string; icon: IconName }>> = {
  break: { label: 'Graph break', icon: 'warning' },
  'given up': { label: 'Given up', icon: 'error' },
  recompile: { label: 'Recompiled', icon: 'resume' },
};
/** Hints that are shown at once: the cheapest comes first. */
const HINTS = 1;

export class Findings {
  readonly element = h('section', { class: 'wv-findings', 'aria-label': 'Breaks and recompiles' });
  private readonly list = h('ul', {});
  private readonly count = h('span', { class: 'wv-note' });
  private readonly more = new More<Finding>(this.list, (one) => this.item(one));
  private readonly nothing = h('p', { class: 'wv-nothing' });
  private report: Report | null = null;
  private items: readonly HTMLElement[] = [];
  private readonly shown = new WeakMap<Element, Finding>();

  /** `go` is called for a finding whose line a person wants to see. */
  constructor(private readonly go: (finding: Finding, from: HTMLElement) => void) {
    const title = h('h3', {}, 'Graph breaks and recompiles', this.count);
    const key = h('kbd', { 'aria-hidden': 'true' }, 'B');
    title.append(h('span', { class: 'wv-space' }), key);
    this.element.append(title, this.list, this.more.element, this.nothing);
    roving(this.list, () => this.items);
    this.list.addEventListener('keydown', (event) => {
      const { target } = event;
      if (event.key !== 'Enter' || !(target instanceof HTMLElement)) return;
      if (this.open(target)) event.preventDefault();
    });
    this.list.addEventListener('click', ({ target }) => {
      const inner = target instanceof Element ? target : null;
      // Text that a person marks to copy it is no wish to leave.
      const marked = getSelection()?.isCollapsed === false && !inner?.closest('button');
      if (marked || inner?.closest('a, summary')) return;
      const item = inner?.closest('li.wv-finding');
      if (item instanceof HTMLElement) this.open(item);
    });
  }

  show(report: Report, query: string): void {
    this.report = report;
    const found = report.findings.filter(({ text }) => text.includes(query));
    const { length } = report.findings;
    const all = formatCount(length);
    this.count.textContent = query ? `${formatCount(found.length)} of ${all}` : all;
    this.more.show(found, () => this.settle());
    this.nothing.hidden = found.length > 0;
    this.nothing.textContent =
      length === 0
        ? 'None: all that was compiled is one graph each, and nothing was compiled twice.'
        : 'Nothing has this name.';
  }

  focus(): void {
    (this.items.find(({ tabIndex }) => tabIndex === 0) ?? this.items[0])?.focus();
  }

  private settle(): void {
    this.items = [...this.list.children].filter((item) => item instanceof HTMLElement);
    const stop = this.items.find(({ tabIndex }) => tabIndex === 0) ?? this.items[0];
    if (stop) setStop(this.items, stop);
  }

  private open(item: HTMLElement): boolean {
    const finding = this.shown.get(item);
    if (!finding?.source) return false;
    this.go(finding, item);
    return true;
  }

  private item(one: Finding): HTMLElement {
    const { label, icon: name } = KINDS[one.kind];
    const { source, count } = one;
    const place = source ? placeLabel(source) : '';
    const head = h('div', { class: 'wv-head' }, icon(name, 12), h('b', {}, label));
    const item = h('li', { class: `wv-finding wv-${one.kind.replace(' ', '-')}`, tabindex: -1 });
    if (source) {
      const to = link(place, () => {}, 'Go to this line (Enter)'); // its click is the item's
      to.tabIndex = -1;
      head.append(to);
    }
    const of = this.report?.regionLabel(one.region) ?? '';
    if (count > 1) head.append(h('span', { class: 'wv-pill' }, `× ${count}`));
    head.append(h('span', { class: 'wv-note wv-region', title: of }, of));
    item.append(head, ...body(one));
    const times = count > 1 ? `, ${plural(count, 'compilation')}` : '';
    const spoken = `${label}${place ? ` at ${place}` : ''}: ${one.title}${times}`;
    item.setAttribute('aria-label', source ? `${spoken}. Enter goes to the line` : spoken);
    this.shown.set(item, one);
    return item;
  }
}

function body(one: Finding): HTMLElement[] {
  const parts: HTMLElement[] = [];
  if (one.source?.text) {
    const number = h('i', {}, String(one.source.line));
    parts.push(h('div', { class: 'wv-code' }, number, one.source.text.trim().slice(0, 400)));
  }
  const explanation = one.explanation
    ? h('span', { class: 'wv-note' }, ...words(one.explanation))
    : null;
  parts.push(h('p', {}, h('b', {}, ...words(one.title)), explanation ? ' ' : null, explanation));
  if (one.guard) parts.push(h('p', { class: 'wv-guard' }, 'guard ', h('code', {}, one.guard)));
  const todo = one.hints.slice(0, HINTS).map((hint) => h('li', {}, ...words(hint)));
  if (todo.length > 0) parts.push(h('ul', { class: 'wv-hints', 'aria-label': 'Hints' }, ...todo));
  const rest = one.hints.slice(HINTS).map((hint) => h('li', {}, ...words(hint)));
  if (rest.length > 0) {
    const heading = h('summary', {}, plural(rest.length, 'more hint'));
    parts.push(h('details', {}, heading, h('ul', { class: 'wv-hints' }, ...rest)));
  }
  if (one.link) {
    const to = { href: one.link, target: '_blank', rel: 'noopener noreferrer', class: 'wv-out' };
    parts.push(h('p', {}, h('a', to, 'About this kind of break', icon('external', 12))));
  }
  return parts;
}

/** Torch's own sentences, what stands between backticks set as code. */
function words(text: string): (Node | string)[] {
  return sentence(text, 700);
}
