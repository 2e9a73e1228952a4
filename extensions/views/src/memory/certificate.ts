/** What a replay of the trace came to, in a pill: only all of it is green. */
import { h } from '../graph/dom';
import { formatCount, shorten } from '../graph/format';
import type { MemoryColumns } from './series';

export function certificatePill(record: MemoryColumns): HTMLElement {
  const made = record.certificate;
  if (!made) {
    const why =
      'Sizes of freed blocks are the requests rounded up to 512 B; a replay would tell more.';
    return h('span', { class: 'wv-pill', title: why }, 'not replayed');
  }
  const exact =
    made.num_addresses > 0 &&
    made.first_difference === '' &&
    made.addresses === made.num_addresses &&
    made.segments === made.num_segments &&
    made.releases === made.num_releases &&
    made.blocks === made.num_blocks;
  const title = `Covers ${made.covers}. ${made.first_difference}`.trim();
  if (exact) {
    const text = `✓ replay reproduces 100 % of ${formatCount(made.num_addresses)} addresses`;
    return h('span', { class: 'wv-pill wv-good', title: shorten(title, 600) }, text);
  }
  const share = made.num_addresses > 0 ? made.addresses / made.num_addresses : 0;
  // Rounded down: 99.96 % is not all of them.
  const text = `! replay reproduces ${(Math.floor(share * 1000) / 10).toFixed(1)} %: ${shorten(made.first_difference, 90)}`;
  return h('span', { class: 'wv-pill wv-warn', title: shorten(title, 600) }, text);
}
