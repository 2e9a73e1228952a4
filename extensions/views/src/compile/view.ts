/** The compile report: what it came to, where it broke, what was compiled, and into which kernels. */
import type { SourceLine } from '@torch-workbench/records';
import { h } from '../dom';
import { messageOf } from '../errors';
import { follow, newSize } from '../graph/follow';
import { shorten } from '../graph/format';
import type { Dispose, Store } from '../store';
import { Findings } from './findings';
import { Kernels } from './kernels';
import { handleKey } from './keyboard';
import type { CompileViewState } from './mount';
import { failed, nothingCompiled } from './nothing';
import { Pieces } from './pieces';
import { Report, type Piece } from './report';
import { STYLE } from './style';
import { summary } from './summary';

const MEDIUM = 860;
const DELAY_MS = 120;
const EMPTY = 'No report yet.';

export class CompileView {
  readonly element = h('div', { class: 'wv-view wv-compile' });
  readonly search = h('input', {
    type: 'search',
    placeholder: 'Module, operation, kernel',
    'aria-label': 'Filter by module, operation, kernel or reason',
    maxlength: 200,
  });
  readonly findings = new Findings(({ source }, from) => this.go(source, from));
  readonly pieces = new Pieces({
    select: (piece) => this.select(piece),
    go: (region, from) => {
      const { report } = this;
      this.go(report?.source(report.record.regions[region]?.source ?? -1) ?? null, from);
    },
  });
  readonly kernels = new Kernels(
    (kernel) => this.state?.source?.(kernel) ?? null,
    (text) => this.say(text),
  );
  private report: Report | null = null;
  private piece: Piece | null = null;
  private state: CompileViewState | null = null;
  private query = '';
  private timer = 0;
  private end: Dispose = () => {};
  private readonly title = h('b', { class: 'wv-title' });
  private readonly bar: HTMLElement;
  private readonly over = h('div', { class: 'wv-over' });
  private readonly main: HTMLElement;
  private readonly message = h('div', { class: 'wv-message', hidden: true });
  private readonly spoken = h('div', { class: 'wv-sr', role: 'status', 'aria-live': 'polite' });

  constructor(private readonly store: Store<CompileViewState, never>) {
    const key = h('kbd', { 'aria-hidden': 'true' }, '/');
    const find = h('label', { class: 'wv-find' }, this.search, key);
    this.bar = h('div', { class: 'wv-bar' }, this.title, h('span', { class: 'wv-space' }), find);
    const lists = h('div', { class: 'wv-main' }, this.findings.element, this.pieces.element);
    this.main = h('div', { class: 'wv-body' }, lists, this.kernels.element);
    this.element.append(h('style', {}, STYLE), this.bar, this.over, this.main);
    this.element.append(this.message, this.spoken);
    this.search.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.filter(), DELAY_MS);
    });
  }

  start(): void {
    this.end = follow(this.element, this.main, this.store, {
      key: (event) => handleKey(this, event),
      theme: () => {},
      update: () => this.update(),
      resize: () => void newSize(this.element, MEDIUM, 1000),
    });
    newSize(this.element, MEDIUM, 1000);
    this.update();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.end();
    this.element.remove();
  }

  /** Takes the filter away. */
  clear(): void {
    this.search.value = '';
    this.filter();
  }

  private update(): void {
    const state = this.store.get();
    if (state === this.state) return;
    this.state = state;
    let problem = state.error;
    try {
      this.report = state.record && new Report(state.record);
    } catch (reason) {
      this.report = null;
      problem = messageOf(reason);
    }
    this.open(this.report, problem);
  }

  private open(report: Report | null, problem: string | null): void {
    const shown = problem === null && report !== null && !report.isEmpty;
    for (const part of [this.bar, this.over, this.main]) part.hidden = !shown;
    this.message.hidden = shown;
    this.element.classList.toggle('wv-bare', !shown);
    if (problem !== null) this.message.replaceChildren(failed(problem));
    else if (!report) this.message.replaceChildren(h('p', {}, EMPTY));
    else if (report.isEmpty) this.message.replaceChildren(...nothingCompiled(report.record));
    else this.fill(report);
  }

  private fill(report: Report): void {
    const { title, device, torch_version: version } = report.record;
    this.title.textContent = `Compile report of ${shorten(title, 80)}`;
    this.title.title = `torch ${version}, ${device}`;
    this.over.replaceChildren(...summary(report));
    const kept = report.pieces[this.piece?.row ?? -1];
    this.piece =
      kept ?? report.pieces.find(({ kernels }) => kernels.length > 0) ?? report.pieces[0] ?? null;
    this.list(report);
  }

  private list(report: Report): void {
    this.findings.show(report, this.query);
    this.pieces.show(report, this.query);
    this.pieces.mark(this.piece?.row ?? null);
    this.kernels.show(report, this.piece, this.query);
  }

  private filter(): void {
    clearTimeout(this.timer);
    const query = this.search.value.trim().toLowerCase();
    const { report } = this;
    if (query === this.query || !report) return;
    this.query = query;
    const found = report.pieces.filter(({ text }) => text.includes(query));
    // What is shown beside the list is one of the list, where it has one.
    if (this.piece && found[0] && !found.includes(this.piece)) this.piece = found[0];
    this.list(report);
    this.say(`${found.length} graphs`);
  }

  private select(piece: Piece): void {
    const { report } = this;
    if (!report) return;
    this.piece = piece;
    this.pieces.mark(piece.row);
    this.kernels.show(report, piece, this.query);
  }

  /** Requests a line of the user's code from the host. */
  private go(source: SourceLine | null, from: HTMLElement): void {
    if (!source) return;
    const how = { bubbles: true, cancelable: true, composed: true };
    const taken = !from.dispatchEvent(
      new CustomEvent('workbench:open', { detail: { kind: 'goto', source }, ...how }),
    );
    if (!taken) this.say('Lines of code cannot be opened here.');
  }

  private say(text: string): void {
    this.spoken.textContent = text;
  }
}
