/** What the view says in words: errors, and what to do while there is nothing to draw. */
import { h } from '../graph/dom';
import { formatBytes, shorten } from '../graph/format';
import type { MemoryColumns } from './series';

const EMPTY = 'No memory recording yet. Capture a step, or record any code with wb.memory().';

/** Shows an error in a box over what still works, or why nothing is drawn. */
export function showMessage(
  element: HTMLElement,
  error: string | null,
  record: MemoryColumns | null,
  drawn: boolean,
): void {
  element.hidden = error === null && drawn;
  element.style.pointerEvents = drawn ? 'none' : '';
  if (error === null) {
    element.replaceChildren(h('p', {}, record ? nothing(record) : EMPTY));
    return;
  }
  const title = h('b', {}, 'The memory record could not be shown');
  element.replaceChildren(
    h('div', { class: 'wv-error', role: 'alert' }, title, shorten(error, 2000)),
  );
}

function nothing(record: MemoryColumns): string {
  const held = Array.from(record.block_bytes).reduce((sum, bytes) => sum + bytes, 0);
  const stayed = held > 0 ? `; ${formatBytes(held)} were there before and stayed` : '';
  return `Nothing was allocated or freed on ${shorten(record.device, 40)}${stayed}.`;
}
