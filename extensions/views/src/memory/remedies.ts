/** What may be done about a step that does not fit: tried, with what it came to and costs. */
import type { MemoryRecord } from '@torch-workbench/records';
import { button, h } from '../graph/dom';
import { formatBytes, oneLine, shorten } from '../graph/format';

type Remedy = MemoryRecord['remedies'][number];

const SAID_MS = 2_000;

/** Two lines for each: whether it fits and what it takes, then its cost and the code to copy. */
export function remediesTable(remedies: readonly Remedy[]): HTMLElement {
  const head = h('tr', {});
  for (const text of ['Remedy', 'Fits', 'Peak']) head.append(h('th', { scope: 'col' }, text));
  const table = h('table', { class: 'wv-remedies' }, h('thead', {}, head));
  const first = remedies.find(({ fits }) => fits);
  for (const remedy of remedies) table.append(remedyRows(remedy, remedy === first));
  return table;
}

function remedyRows(remedy: Remedy, best: boolean): HTMLElement {
  const { name, code, peak_bytes, fits, cost, basis } = remedy;
  const sign = fits
    ? h('span', { class: 'wv-fits' }, '✓ yes')
    : h('span', { class: 'wv-oom' }, '✕ no');
  const peak = peak_bytes < 0 ? '–' : formatBytes(peak_bytes);
  const first = h(
    'tr',
    {},
    h('th', { scope: 'row', title: shorten(name, 300) }, best ? bestSign() : '', shorten(name, 60)),
  );
  first.append(h('td', {}, sign), h('td', { title: 'Predicted, reserved at the peak' }, peak));
  const text = code.slice(0, 4000);
  const lines = h('pre', { class: 'wv-code' }, text);
  const said = h('p', { class: 'wv-note' }, oneLine(cost), basis ? ` (${oneLine(basis)})` : '');
  const more = h('td', { colspan: 3 }, said);
  // What does not help is not to be copied.
  if (fits && text.trim())
    more.append(h('div', { class: 'wv-copy' }, lines, copyButton(text, name)));
  return h(
    'tbody',
    { class: best ? 'wv-best' : fits ? null : 'wv-unfit' },
    first,
    h('tr', {}, more),
  );
}

function bestSign(): HTMLElement {
  return h('span', { class: 'wv-cheapest' }, 'cheapest that fits');
}

function copyButton(text: string, name: string): HTMLButtonElement {
  const copy = button('Copy', () => void act(), {
    'aria-label': `Copy the code of ${oneLine(name)}`,
  });
  const act = async (): Promise<void> => {
    // Pages without a secure origin have no clipboard; the code is there to be marked by hand.
    const done = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    copy.textContent = done ? 'Copied' : 'Not copied';
    window.setTimeout(() => (copy.textContent = 'Copy'), SAID_MS);
  };
  return copy;
}
