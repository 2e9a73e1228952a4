/** Fill and figure of a box in a diff. */
import type { Shade } from '../graph/colour';
import { formatBytes } from '../graph/format';
import type { Item } from '../graph/groups';
import type { Palette } from '../graph/theme';
import { isBeyond, type Change } from './change';
import type { Colours } from './paint-mark';
import type { DiffState } from './state';
import { bytesArrow, detailOf, growthText, signedBytes } from './words';

/** Tinted by what became of it; the strong colour is its outline's. */
export function shadeOf(item: Item, state: DiffState, colours: Colours, palette: Palette): Shade {
  const { raise, ink, ink2 } = palette;
  const plain = { fill: raise, ink, ink2, hatched: false, bad: false, figure: '' };
  const what = state.index.state(item);
  if (item.kind !== 'operation') {
    const { a, b } = state.index.saved(item);
    const shade = { ...plain, figure: figureOf(what, a, b) };
    // A module that changed in parts says so by its chip; its surface is that of its level.
    return what === 'removed' || what === 'added' ? { ...shade, ...marked(colours, what) } : shade;
  }
  const change = state.index.of(item.id);
  const shade = { ...plain, figure: figureOfChange(change) };
  if (what === 'same') return shade;
  const detail = detailOf(change);
  return { ...shade, ...marked(colours, what), ...(detail ? { detail } : {}) };
}

function marked(colours: Colours, what: keyof Colours): { fill: string; mark: string } {
  return { fill: colours[what].fill, mark: colours[what].ink };
}

function figureOf(what: string, a: number, b: number): string {
  if (what === 'removed') return formatBytes(a);
  return what === 'added' ? formatBytes(b) : bytesArrow(a, b);
}

/** A gradient that changed much stands where nothing else did, bytes everywhere else. */
function figureOfChange(change: Change): string {
  const { state, a, b } = change;
  if (isBeyond(change) && a && b && a.saved === b.saved) return growthText(change);
  const [before, after] = [a?.saved ?? 0, b?.saved ?? 0];
  // A difference is short enough to leave the name its room.
  if (state === 'changed' && before !== after) return signedBytes(after - before);
  if (before + after > 0) return figureOf(state, before, after);
  const shared = Math.max(a?.shared ?? 0, b?.shared ?? 0);
  return shared > 0 ? `↑ ${formatBytes(shared)}` : '';
}
