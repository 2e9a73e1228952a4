/** Controls and parts of inspectors. Text always goes in as text, never as markup. */
import { h, type Attrs } from '../dom';
import { oneLine } from './format';

export { h };

/** A button whose label is text, with an optional key shown in it. */
export function button(
  label: string,
  onClick: () => void,
  attributes: Attrs = {},
  key = '',
): HTMLButtonElement {
  const own = { type: 'button', class: 'wv-btn', onclick: onClick };
  const element = h('button', { ...own, ...attributes }, label);
  if (key) element.append(keyCap(key));
  return element;
}

/** The key that does the same, for the eye alone. */
export function keyCap(key: string): HTMLElement {
  return h('kbd', { 'aria-hidden': 'true' }, key);
}

/** Shows whether a button is pressed. */
export function press(element: Element, on: boolean): void {
  element.setAttribute('aria-pressed', String(on));
}

/** Listens to an event of an element; a wheel may be kept from the page. */
export function on<K extends keyof HTMLElementEventMap>(
  element: HTMLElement,
  kind: K,
  listener: (event: HTMLElementEventMap[K]) => void,
): void {
  element.addEventListener(kind, listener, { passive: false });
}

export interface Choices<T> {
  element: HTMLElement;
  set: (value: T | null) => void;
  /** Turns a value off with the reason as its tooltip, or, without one, on. */
  allow: (value: T, reason: string) => void;
}

/** Text that does something. */
export function link(text: string, onclick: () => void, title = ''): HTMLButtonElement {
  return h('button', { type: 'button', class: 'wv-link', title: title || null, onclick }, text);
}

/** A row of buttons of which one is pressed. */
export function choices<T extends string>(
  label: string,
  values: readonly { value: T; text: string }[],
  current: T,
  onChange: (value: T) => void,
): Choices<T> {
  const element = h('div', { class: 'wv-seg', role: 'group', 'aria-label': label });
  const buttons = values.map(({ value, text }) => {
    const onclick = (): void => {
      if (one.getAttribute('aria-disabled') === 'true') return;
      set(value);
      onChange(value);
    };
    const one = h('button', { type: 'button', onclick }, text);
    element.append(one);
    return { value, one };
  });
  const set = (value: T | null): void => {
    for (const { value: own, one } of buttons) press(one, own === value);
  };
  // Stays in the focus order: the reason must be within reach of the keyboard too.
  const allow = (value: T, reason: string): void => {
    const one = buttons.find(({ value: own }) => own === value)?.one;
    one?.setAttribute('aria-disabled', String(reason !== ''));
    if (one) one.title = reason;
  };
  set(current);
  return { element, set, allow };
}

/** Label and value pairs. */
export function facts(rows: readonly (readonly [string, string])[]): HTMLElement {
  const list = h('dl', 'wv-kv');
  for (const [label, value] of rows)
    list.append(h('dt', {}, label), h('dd', { title: value }, value));
  return list;
}

/** A sentence of the record's on one line: what stands between backticks is set as code. */
export function sentence(text: string, limit = 600): (Node | string)[] {
  const parts = oneLine(text.slice(0, limit)).split('`');
  // An odd number of backticks is not markup.
  if (parts.length % 2 === 0) return [parts.join('`')];
  return parts.map((part, at) => (at % 2 ? h('code', {}, part) : part));
}

/**
 * Replaces what is in an element, as often as figures change, without losing a reader's place: the
 * focus stays where it was, and under the same title so do the scroll and what was opened. Gives
 * whether the title is the same.
 */
export function renew(element: HTMLElement, parts: readonly Node[]): boolean {
  const all = <E extends HTMLElement>(what: string): E[] => [...element.querySelectorAll<E>(what)];
  const title = (): unknown => all('h2')[0]?.textContent;
  const focusable = (): HTMLElement[] => all('a,button,summary,[tabindex]');
  const [before, top] = [title(), element.scrollTop];
  const open = all<HTMLDetailsElement>('details').map((one) => one.open);
  const { activeElement } = element.getRootNode() as Document;
  const at = focusable().indexOf(activeElement as HTMLElement);
  element.replaceChildren(...parts);
  const same = before === title();
  if (same)
    all<HTMLDetailsElement>('details').forEach((one, row) => (one.open = open[row] ?? one.open));
  focusable()[at]?.focus({ preventScroll: true });
  element.scrollTop = same ? top : 0;
  return same;
}

/** A remark in the second ink. */
export function note(text: string, ...more: Node[]): HTMLElement {
  return h('p', 'wv-note', ...sentence(text, text.length), ...more);
}

/** The same within a line. */
export function aside(...children: (Node | string)[]): HTMLElement {
  return h('span', 'wv-note', ...children);
}

/** A titled part of an inspector. */
export function section(title: string, note: string, ...children: Node[]): HTMLElement {
  const heading = h('h3', {}, title);
  if (note) heading.append(aside(note));
  return h('section', 'wv-sec', heading, ...children);
}

interface Source {
  filename: string;
  line: number;
  cell: number | null;
  function: string;
  text: string;
}

/** `cell 4, line 9` or `model.py:9`. */
export function sourceLabel({ filename, line, cell }: Source): string {
  return cell === null
    ? `${filename.split('/').pop() ?? ''}:${line}`
    : `cell ${cell}, line ${line}`;
}

/** The label of a line as a link; a click requests the host to open it. */
export function sourceLink(source: Source): HTMLElement {
  const open = (): void => {
    const init = {
      detail: { kind: 'goto', source },
      bubbles: true,
      cancelable: true,
      composed: true,
    };
    element.dispatchEvent(new CustomEvent('workbench:open', init));
  };
  const element = link(sourceLabel(source), open, 'Open this line');
  return element;
}

/** Where a line of the user's code is, shown as a section. */
export function sourceSection(source: Source): HTMLElement {
  const code = h('div', 'wv-code');
  code.append(
    h('i', {}, String(source.line)),
    source.text.trim().slice(0, 2000) || source.function,
  );
  const part = section('Source', '', code);
  part.querySelector('h3')?.append(aside(sourceLink(source)));
  return part;
}
