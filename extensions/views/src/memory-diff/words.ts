/** How changes are written. */
import { signedBytes } from '../diff/words';
import { formatBytes, formatCount } from '../graph/format';
import type { Change } from './groups';
import type { By } from './naming';

/** What a grouping is called. */
export const GROUPINGS: Record<By, { text: string; one: string; many: string }> = {
  category: { text: 'Category', one: 'category', many: 'categories' },
  module: { text: 'Module', one: 'module', many: 'modules' },
  line: { text: 'Line', one: 'line', many: 'lines' },
  stack: { text: 'Stack', one: 'stack', many: 'stacks' },
};

/** `+12 %` of what A had; `only in A` and `only in B` where the other has none. */
export function shareOf({ before, after, change }: Change): string {
  if (before === after) return '';
  if (before === 0) return 'only in B';
  if (after === 0) return 'only in A';
  const share = (100 * change) / before;
  if (share >= 1000) return `× ${formatCount(after / before)}`;
  if (Math.abs(share) < 0.05) return share > 0 ? '< +0.1 %' : '> −0.1 %';
  const text = Math.abs(share).toFixed(Math.abs(share) < 9.95 ? 1 : 0);
  return `${share > 0 ? '+' : '−'}${text} %`;
}

/** `activations: 64 KiB in A, 512 KiB in B, +448 KiB`, for who listens. */
export function spoken({ what, before, after, change }: Change): string {
  return `${what}: ${formatBytes(before)} in A, ${formatBytes(after)} in B, ${signedBytes(change)}`;
}
