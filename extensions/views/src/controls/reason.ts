import type { ModeChoice, ModeState } from '@torch-workbench/records';
import { h, setText } from '../dom';
import { clock, oneLine } from '../format';
import { icon } from '../icons';
import { Button, copyText, iconButton } from './button';
import type { PopoverContent } from './popover';

/** Why a choice is not available and what to do: one fact, a remedy, commands to copy. */
export function reasonContent(
  title: string,
  choice: ModeChoice,
  checkAgain: () => Promise<boolean>,
): PopoverContent {
  const interactive = choice.commands.length > 0;
  const facts = h('dl', {}, h('dt', {}, 'Why'), h('dd', {}, oneLine(choice.why, 600)));
  if (choice.remedy) {
    facts.append(h('dt', {}, interactive ? 'Do this' : 'Instead'));
    facts.append(h('dd', {}, oneLine(choice.remedy, 600)));
  }
  const heading = h('h4', {}, icon('blocked'), h('span', {}, oneLine(title)));
  const body: HTMLElement[] = [facts];
  if (interactive) {
    body.push(...choice.commands.map(commandRow), checkRow(checkAgain));
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

function checkRow(checkAgain: () => Promise<boolean>): HTMLElement {
  const note = h('span', { class: 'note', role: 'status' });
  const button = new Button('is-small', { label: 'Check again' }, () => {
    setText(note, 'checking');
    void checkAgain().then((done) => setText(note, done ? `last checked ${clock()}` : ''));
  });
  return h('div', { class: 'wb-actions wb-check-again' }, button.el, note);
}

function selectText(el: HTMLElement): void {
  const selection = getSelection();
  selection?.selectAllChildren(el);
}
