/** The kernels of one graph: what was fused into each, and its source. */
import { roving, setStop } from '../controls/roving';
import { h } from '../dom';
import { formatCount, plural } from '../graph/format';
import { Code } from './code';
import { More } from './more';
import { kernelText, type Piece, type Report } from './report';
import { kernelKind, passOf } from './words';

const DROPPED = 'The code of this kernel was dropped to bound memory.';
const LIBRARY = 'A function of a library, which was there before: no source was generated.';
const PYTHON = 'No graph was produced: it runs as Python.';
const NONE =
  'No kernel is known: nothing was generated for it, or by another backend than Inductor, which keeps its code to itself.';

export class Kernels {
  readonly element = h('section', { class: 'wv-kernels', 'aria-label': 'Kernels' });
  readonly code: Code;
  private readonly title = h('h3', {});
  private readonly list = h('ul', { role: 'listbox', 'aria-label': 'Kernels of the graph' });
  private readonly more = new More<number>(this.list, (row) => this.item(row));
  private readonly rows = new Map<Element, number>();
  private readonly nothing = h('p', { class: 'wv-nothing', hidden: true });
  private items: readonly HTMLElement[] = [];
  private report: Report | null = null;
  private selected: number | null = null;
  /** Counts what is requested, so that a late answer is not shown in another kernel's place. */
  private turn = 0;

  constructor(
    private readonly fetch: (kernel: number) => Promise<string> | null,
    say: (text: string) => void,
  ) {
    this.code = new Code(say);
    const scroll = h('div', { class: 'wv-list' }, this.list, this.more.element, this.nothing);
    this.element.append(this.title, scroll, this.code.element);
    roving(this.list, () => this.items);
    this.list.addEventListener('focusin', ({ target }) => this.choose(target));
    this.list.addEventListener('click', ({ target }) => this.choose(target));
  }

  /** Lists the kernels of a graph; those that a filter names, where it names some. */
  show(report: Report, piece: Piece | null, query: string): void {
    this.report = report;
    const all = piece?.kernels ?? [];
    const named = all.filter((row) => kernelText(report.kernel(row) ?? undefined).includes(query));
    const kernels = named.length > 0 ? named : all;
    const of = piece ? `${piece.name} of ${report.regionLabel(piece.region)}` : '';
    const count = h('span', { class: 'wv-note' }, formatCount(kernels.length));
    const key = h('kbd', { 'aria-hidden': 'true' }, 'K');
    const about = h('span', { class: 'wv-note wv-of', title: of }, of);
    this.title.replaceChildren('Kernels', count, about, h('span', { class: 'wv-space' }), key);
    this.rows.clear();
    this.more.show(kernels, () => this.settle());
    this.nothing.hidden = kernels.length > 0;
    this.nothing.textContent = without(piece);
    const keep = this.selected !== null && kernels.includes(this.selected) ? this.selected : null;
    this.select(
      keep ??
        kernels.find((row) => report.kernel(row)?.language !== 'library') ??
        kernels[0] ??
        null,
    );
  }

  focus(): void {
    (this.items.find(({ tabIndex }) => tabIndex === 0) ?? this.items[0])?.focus();
  }

  private choose(target: EventTarget | null): void {
    const item = target instanceof Element ? target.closest('[role=option]') : null;
    const row = item ? this.rows.get(item) : undefined;
    if (row !== undefined && row !== this.selected) this.select(row);
  }

  private select(row: number | null): void {
    this.selected = row;
    this.turn += 1;
    this.settle();
    const kernel = row === null ? null : (this.report?.kernel(row) ?? null);
    this.code.element.hidden = kernel === null;
    if (!kernel || row === null) return;
    const { code, language, name } = kernel;
    if (code) return this.code.show(name, language, code);
    if (language === 'library') return this.code.showMessage(name, LIBRARY);
    const sent = this.fetch(row);
    if (!sent) return this.code.showMessage(name, DROPPED);
    this.code.showMessage(name, 'Requesting the source from the kernel…');
    const { turn } = this;
    const here = (show: () => void): void => {
      if (turn === this.turn) show();
    };
    sent.then(
      (text) =>
        here(() =>
          text ? this.code.show(name, language, text) : this.code.showMessage(name, DROPPED),
        ),
      (reason: unknown) => here(() => this.code.showMessage(name, reasonOf(reason))),
    );
  }

  private settle(): void {
    this.items = [...this.rows.keys()].filter((item) => item instanceof HTMLElement);
    let stop = this.items[0];
    for (const item of this.items) {
      const chosen = this.rows.get(item) === this.selected;
      item.setAttribute('aria-selected', String(chosen));
      if (chosen) stop = item;
    }
    if (stop) setStop(this.items, stop);
  }

  private item(row: number): HTMLElement {
    const item = h('li', { role: 'option', tabindex: -1, 'aria-selected': 'false' });
    const kernel = this.report?.kernel(row);
    if (!kernel) return item;
    const head = h('div', { class: 'wv-head' }, h('span', { class: 'wv-pill' }, passOf(kernel)));
    head.append(h('b', { class: 'wv-mono', title: kernel.name }, kernel.name));
    const facts = [kernelKind(kernel)];
    if (kernel.launches !== 1) facts.push(plural(kernel.launches, 'launch', 'launches'));
    if (kernel.from_cache) facts.push('from the cache on disk');
    head.append(h('span', { class: 'wv-note wv-facts' }, facts.join(' · ')));
    const fused = kernel.operations.map((name) => h('code', {}, name));
    if (fused.length === 0) fused.push(h('span', { class: 'wv-note' }, 'operations unknown'));
    else if (!kernel.complete) fused.push(h('span', { class: 'wv-note' }, 'and perhaps more'));
    item.append(head, h('div', { class: 'wv-fused', 'aria-label': 'Fused operations' }, ...fused));
    this.rows.set(item, row);
    return item;
  }
}

/** Why a graph has no kernel. */
function without(piece: Piece | null): string {
  if (!piece) return 'Choose a graph to see its kernels.';
  if (piece.operations > 0) return NONE;
  return piece.error ? `${PYTHON} ${piece.error}` : PYTHON;
}

function reasonOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
