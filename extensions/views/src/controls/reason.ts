import type { ModeChoice, ModeState } from '@torch-workbench/records';
import { h, setText } from '../dom';
import { clock, oneLine } from '../format';
import { icon } from '../icons';
import { Button, copyText, iconButton } from './button';
import type { PopoverContent } from './popover';

/** Queries again what the machine has. */
export interface Checker {
  /** Resolves to false when the kernel could not be queried (and that was shown). */
  checkAgain(): Promise<boolean>;
}

/** When it was queried last, as a clock shows it: what is said of a choice is renewed meanwhile. */
const lastChecked = new WeakMap<Checker, string>();

/** Why a choice is not available and what to do: one fact, a remedy, commands to copy. */
export function reasonContent(title: string, choice: ModeChoice, checker: Checker): PopoverContent {
  const interactive = choice.commands.length > 0;
  const facts = h('dl', {}, h('dt', {}, 'Why'), h('dd', {}, oneLine(choice.why, 600)));
  if (choice.remedy) {
    facts.append(h('dt', {}, interactive ? 'Do this' : 'Instead'));
    facts.append(h('dd', {}, oneLine(choice.remedy, 600)));
  }
  const heading = h('h4', {}, icon('blocked'), h('span', {}, oneLine(title)));
  const body: HTMLElement[] = [facts];
  if (interactive) {
    body.push(...choice.commands.map(commandRow), checkRow(checker));
  }
  return { title: heading, body, interactive };
}

/** What to know of a choice before it is made: what it was measured to cost, and what to use. */
export function noteContent(title: string, choice: ModeChoice): PopoverContent {
  const facts = h('dl', {}, h('dt', {}, 'Here'), h('dd', {}, oneLine(choice.why, 600)));
  if (choice.remedy) {
    facts.append(h('dt', {}, 'Instead'), h('dd', {}, oneLine(choice.remedy, 600)));
  }
  return { title: h('h4', {}, h('span', {}, oneLine(title))), body: [facts], interactive: false };
}

/** Choices that have no place in the row: what is to be known of each, and how to make it. */
export function moreContent(
  label: string,
  choices: readonly ModeChoice[],
  pick: (value: string) => void,
  checker: Checker,
): PopoverContent {
  const rows = choices.map((choice) => {
    const name = oneLine(choice.value, 40);
    const use = (): void => pick(choice.value);
    const head = choice.available
      ? new Button('is-small', { label: name, title: `Switch to ${name}` }, use).el
      : h('b', {}, icon('blocked'), h('span', {}, name));
    const why = h('p', {}, oneLine([choice.why, choice.remedy].filter(Boolean).join(' '), 600));
    return h('li', {}, head, why, ...choice.commands.map(commandRow));
  });
  const title = h('h4', {}, h('span', {}, `More of ${oneLine(label, 40)}`));
  const body: HTMLElement[] = [h('ul', { class: 'wb-more' }, ...rows)];
  if (choices.some(({ available }) => !available)) body.push(checkRow(checker));
  return { title, body, interactive: true };
}

/** What takes the place of a reason that no longer holds. */
export function availableContent(
  title: string,
  choice: ModeChoice,
  checker: Checker,
): PopoverContent {
  const note = choice.why === '' ? [] : noteContent(title, choice).body;
  const checked = h('span', { class: 'note', role: 'status' }, checkedText(checker));
  const heading = h('h4', {}, icon('tick'), h('span', {}, oneLine(title)));
  return { title: heading, body: [...note, checked], interactive: false };
}

/** The choice of a mode that cannot run here and says most about it. */
export function blockedChoice(mode: ModeState): ModeChoice | undefined {
  const blocked = mode.choices.filter((choice) => !choice.available);
  return blocked.find((choice) => choice.commands.length > 0) ?? blocked[0];
}

/** A shell command with a button that copies it. */
function commandRow(command: string): HTMLElement {
  const code = h('code', { title: command }, command);
  const label = `Copy: ${command}`;
  const button = iconButton('copy', label, () => {
    void copyText(command).then((done) => {
      if (!done) selectText(code);
      button.replaceChildren(icon(done ? 'tick' : 'copy'));
      button.title = done ? 'Copied' : 'Selected: copy it with the keyboard';
    });
  });
  return h('div', { class: 'wb-cmd' }, code, button);
}

function checkRow(checker: Checker): HTMLElement {
  const note = h('span', { class: 'note', role: 'status' }, checkedText(checker));
  const button = new Button('is-small', { label: 'Check again' }, () => {
    setText(note, 'checking');
    void checker.checkAgain().then((done) => {
      if (done) lastChecked.set(checker, clock());
      setText(note, done ? checkedText(checker) : '');
    });
  });
  return h('div', { class: 'wb-actions wb-check-again' }, button.el, note);
}

function checkedText(checker: Checker): string {
  const at = lastChecked.get(checker);
  return at === undefined ? '' : `last checked ${at}`;
}

function selectText(el: HTMLElement): void {
  const selection = getSelection();
  selection?.selectAllChildren(el);
}
