import { Button } from '../controls/button';
import type { Popover, PopoverContent } from '../controls/popover';
import { h, setShown } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';

export interface NotesButton {
  readonly el: HTMLElement;
  update(notes: readonly string[]): void;
}

/**
 * What a person should know of the experiment, behind a button that says how many sentences there
 * are: some say that numbers or speed are not what was expected.
 */
export function notesButton(popover: Popover): NotesButton {
  let notes: readonly string[] = [];
  const button = new Button('is-quiet wb-notes-btn', { label: 'Notes', icon: 'info' }, () => {
    popover.pin(button.el, content(notes));
  });
  button.el.setAttribute('aria-haspopup', 'dialog');
  setShown(button.el, false);
  return {
    el: button.el,
    update(said) {
      const isNew = said.length !== notes.length || said.some((note, at) => note !== notes[at]);
      if (!isNew) return;
      notes = said;
      setShown(button.el, notes.length > 0);
      const many = notes.length === 1 ? '1 note' : `${notes.length} notes`;
      button.set({ label: many, title: oneLine(notes.at(-1) ?? '', 400) });
      if (popover.openFor !== button.el) return;
      if (notes.length === 0) popover.close();
      else popover.renew(button.el, button.el, content(notes));
    },
  };
}

function content(notes: readonly string[]): PopoverContent {
  const said = notes.map((note) => h('li', {}, oneLine(note, 1_000)));
  const title = h('h4', {}, icon('info'), h('span', {}, 'What to know of this experiment'));
  return { title, body: [h('ul', { class: 'wb-notes' }, ...said)], interactive: true };
}
