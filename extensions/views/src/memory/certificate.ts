/** What a replay of the trace came to, in a pill: only all of it is green. */
import { h } from '../graph/dom';
import { formatCount, plural, shorten } from '../graph/format';
import type { MemoryColumns } from './series';

/** Whether there was something to reproduce, and the replay reproduced all of it. */
export function isExact({ certificate }: MemoryColumns): boolean {
  return (
    certificate !== null &&
    certificate.num_addresses > 0 &&
    certificate.first_difference === '' &&
    certificate.addresses === certificate.num_addresses &&
    certificate.segments === certificate.num_segments &&
    certificate.releases === certificate.num_releases &&
    certificate.blocks === certificate.num_blocks
  );
}

export function certificatePill(record: MemoryColumns): HTMLElement {
  const made = record.certificate;
  if (!made && record.is_predicted) {
    const why = 'A simulated allocator has no trace to be compared with.';
    return h('span', { class: 'wv-pill', title: why }, 'predicted');
  }
  if (!made) {
    const why =
      'Sizes of freed blocks are the requests, rounded up by the settings; a replay would show more.';
    return h('span', { class: 'wv-pill', title: why }, 'not replayed');
  }
  const covered = `${made.settings || 'default'} settings; ${made.cases.join(', ')}`;
  const inferred =
    made.num_inferred > 0
      ? `${plural(made.num_inferred, 'block')} from before the trace: sizes inferred.`
      : '';
  const title = `Covers ${covered}. ${inferred} ${made.first_difference}`.trim();
  if (isExact(record)) {
    const text = `✓ replay reproduces 100 % of ${formatCount(made.num_addresses)} addresses`;
    return h('span', { class: 'wv-pill wv-good', title: shorten(title, 600) }, text);
  }
  const share = made.num_addresses > 0 ? made.addresses / made.num_addresses : 0;
  // Rounded down: 99.96 % is not all of them.
  const text = `! replay reproduces ${(Math.floor(share * 1000) / 10).toFixed(1)} %: ${shorten(made.first_difference, 90)}`;
  return h('span', { class: 'wv-pill wv-warn', title: shorten(title, 600) }, text);
}
