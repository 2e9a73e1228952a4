import { afterEach, beforeEach, expect, it } from 'vitest';
import { h } from '../src/dom';
import { renew } from '../src/graph/dom';

const page = (title: string, ...names: string[]): Node[] => [
  h('section', {}, h('h2', {}, title)),
  ...names.map((name) => h('button', {}, name)),
  h('details', {}, h('summary', {}, 'more'), 'text'),
];
let element: HTMLElement;

beforeEach(() => {
  element = document.body.appendChild(h('aside'));
  renew(element, page('conv', 'a', 'b'));
});

afterEach(() => element.remove());

const focused = (): string | null | undefined => document.activeElement?.textContent;

it('figures that change cost neither focus nor scroll nor what was opened', () => {
  element.querySelectorAll('button')[1]?.focus();
  element.querySelector('details')?.setAttribute('open', '');
  element.scrollTop = 70;
  expect(renew(element, page('conv', 'a', 'b'))).toBe(true);
  expect(focused()).toBe('b');
  expect(element.querySelector('details')?.open).toBe(true);
  expect(element.scrollTop).toBe(70);
});

it('another page begins at its top, as it was made', () => {
  element.querySelector('details')?.setAttribute('open', '');
  element.scrollTop = 70;
  expect(renew(element, page('relu', 'a'))).toBe(false);
  expect(element.querySelector('details')?.open).toBe(false);
  expect(element.scrollTop).toBe(0);
});

it('takes no focus that is elsewhere, nor gives it to what is not there', () => {
  const other = document.body.appendChild(h('button', {}, 'other'));
  other.focus();
  renew(element, page('conv', 'a', 'b'));
  expect(focused()).toBe('other');
  element.querySelector('summary')?.focus();
  renew(element, []);
  expect(document.activeElement).toBe(document.body);
  other.remove();
});

it('keeps the focus in a shadow root too', () => {
  const root = document.body.appendChild(h('div')).attachShadow({ mode: 'open' });
  root.append(element);
  element.querySelectorAll('button')[0]?.focus();
  renew(element, page('conv', 'a', 'b'));
  expect(root.activeElement?.textContent).toBe('a');
});
