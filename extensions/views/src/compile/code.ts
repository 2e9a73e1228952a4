/** The source of a kernel: numbered, coloured, copied by a button, and scrolled in itself. */
import { h } from '../dom';
import { button } from '../graph/dom';
import { formatCount, plural } from '../graph/format';
import { messageOf } from '../errors';
import { coloured } from './highlight';

/** Characters that are laid out at once; a person who wants to read on requests the rest. */
const AT_ONCE = 60_000;

export class Code {
  readonly element = h('div', { class: 'wv-source', hidden: true });
  private readonly name = h('b', { class: 'wv-mono' });
  private readonly lines = h('span', { class: 'wv-note' });
  private readonly label = h('span', {}, 'Copy');
  private readonly copy: HTMLButtonElement;
  private readonly area = h('div', { class: 'wv-text', tabindex: 0, role: 'region' });
  private text = '';

  constructor(private readonly say: (text: string) => void) {
    this.copy = button('', () => void this.copied(), { title: 'Copy the source' }, 'C');
    this.copy.prepend(this.label);
    const space = h('span', { class: 'wv-space' });
    const head = h('div', { class: 'wv-head' }, this.name, this.lines, space, this.copy);
    this.element.append(head, this.area);
  }

  /** Shows the source of a kernel from its first line on. */
  show(name: string, language: string, text: string): void {
    this.head(name, text);
    const all = text.replace(/\n+$/, '');
    this.lines.textContent = plural(count(all), 'line');
    const first = all.length > AT_ONCE ? all.slice(0, all.lastIndexOf('\n', AT_ONCE)) : all;
    this.fill(first, language);
    if (first.length < all.length) {
      const left = formatCount(count(all) - count(first));
      const rest = button(`Show the other ${left} lines`, () => this.fill(all, null));
      this.area.append(h('div', { class: 'wv-more' }, rest));
    }
    this.area.scrollTo?.(0, 0);
  }

  /** One sentence in place of a source. */
  showMessage(name: string, sentence: string): void {
    this.head(name, '');
    this.lines.textContent = '';
    this.area.replaceChildren(h('p', { class: 'wv-nothing' }, sentence));
  }

  /** Puts the source on the clipboard, or says why not. */
  async copied(): Promise<void> {
    if (!this.text) return;
    try {
      await navigator.clipboard.writeText(this.text);
      this.say(`Copied ${this.name.textContent}`);
      this.label.textContent = 'Copied';
    } catch (reason) {
      this.say(`Not copied: ${messageOf(reason)}`);
      this.label.textContent = 'Select it';
      getSelection()?.selectAllChildren(this.area.querySelector('code') ?? this.area);
    }
  }

  private head(name: string, text: string): void {
    this.element.hidden = false;
    this.name.textContent = this.name.title = name;
    this.area.setAttribute('aria-label', `Source of ${name}`);
    this.text = text;
    this.copy.hidden = text === '';
    this.label.textContent = 'Copy';
  }

  private fill(text: string, language: string | null): void {
    const numbers = Array.from({ length: count(text) }, (_, at) => at + 1).join('\n');
    const code = h('code', {}, ...(language === null ? [text] : coloured(text, language)));
    const gutter = h('pre', { class: 'wv-gutter', 'aria-hidden': 'true' }, numbers);
    this.area.replaceChildren(h('div', { class: 'wv-both' }, gutter, h('pre', {}, code)));
  }
}

function count(text: string): number {
  let lines = 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}
