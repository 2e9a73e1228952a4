/** Parts of the view that are loaded when a person first opens them. */
import { messageOf } from '../errors';
import { button, h } from '../graph/dom';
import { shorten } from '../graph/format';

/** Where the parts come from: a host carries them, or fetches each when it is requested. */
export interface Parts {
  /** What is in the row "What if?"; requested where something can answer. */
  readonly whatIf: () => Promise<typeof import('../what-if')>;
  /** Which code allocated memory. */
  readonly flame: () => Promise<typeof import('../flame')>;
}

/** What is said in place of a part that did not come. */
export function unloaded(name: string, reason: unknown): string {
  const why = messageOf(reason);
  return `"${name}" could not be loaded: ${why}`;
}

/** A sentence about what went wrong, and a button that tries again. */
export function failed(sentence: string, again: () => void): [HTMLElement, string, HTMLElement] {
  const said = h('span', { class: 'wv-failed', role: 'alert' }, shorten(sentence, 500));
  return [said, ' ', button('Try again', again)];
}
