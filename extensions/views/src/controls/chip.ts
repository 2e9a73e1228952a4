import type { Status } from '@torch-workbench/records';
import { h, setAttr, setText } from '../dom';
import { icon, type IconName } from '../icons';

interface Look {
  readonly icon: IconName;
  readonly word: string;
  readonly tone: string;
}

/** A status as an icon and one word: never by colour alone. The last is of runs on disk alone. */
const LOOKS: Readonly<Record<Status | 'detached', Look>> = {
  idle: { icon: 'dash', word: 'not started', tone: '' },
  training: { icon: 'ring', word: 'training', tone: 'is-run' },
  paused: { icon: 'pause', word: 'paused', tone: '' },
  finished: { icon: 'tick', word: 'finished', tone: 'is-good' },
  stopped: { icon: 'stop', word: 'stopped', tone: '' },
  exception: { icon: 'error', word: 'exception', tone: 'is-bad' },
  nan: { icon: 'warning', word: 'loss NaN', tone: 'is-warn' },
  detached: { icon: 'ring', word: 'no kernel', tone: 'is-run' },
};

/** How a status is shown; one this page does not know is shown by its own name. */
export function look(status: string): Look {
  return LOOKS[status as keyof typeof LOOKS] ?? { icon: 'info', word: status, tone: '' };
}

/** A chip (with a tint) or, with `wb-state`, the same without one for tables and the run row. */
export class Chip {
  readonly el: HTMLElement;
  private readonly word = h('span');
  private shown = '';

  constructor(private readonly base: 'wb-chip' | 'wb-state') {
    this.el = h('span', { class: base }, this.word);
  }

  update(status: string): void {
    if (status === this.shown) return;
    this.shown = status;
    const { icon: name, word, tone } = look(status);
    setAttr(this.el, 'class', `${this.base} ${tone}`.trim());
    setText(this.word, word);
    this.el.replaceChildren(icon(name, 12), this.word);
  }
}
