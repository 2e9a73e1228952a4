/** The columns of a diff's table: both captures, figure by figure. */
import { sourceLabel } from '../graph/dom';
import { formatBytes, formatCount, formatNumber, shorten } from '../graph/format';
import { size, type Item } from '../graph/groups';
import type { Columns } from '../graph/table';
import { SIGNS, type Side } from './change';
import type { DiffState } from './state';
import { arrow, growthText, signedBytes } from './words';

const HEADINGS = ['Change', 'Call', 'Operations', 'Output', 'Dtype'];
const BYTES = ['Saved A', 'Saved B', 'B − A'];
const GRADIENTS = ['Output gradient A', 'Output gradient B', 'B / A'];

export function diffColumns(state: DiffState): Columns {
  const { gradients } = state.record;
  return {
    headings: [...HEADINGS, ...BYTES, ...(gradients ? GRADIENTS : []), 'Line'],
    cells: (item) => cellsOf(state, item, gradients),
  };
}

function cellsOf(state: DiffState, item: Item, gradients: boolean): string[] {
  const what = state.index.state(item);
  const { a: savedA, b: savedB } = state.index.saved(item);
  const change = item.kind === 'operation' ? state.index.of(item.id) : null;
  const { a = null, b = null } = change ?? {};
  const line = (side: Side | null): string => {
    const source = side && state.record.sources[side.source];
    return source ? shorten(sourceLabel(source), 40) : '';
  };
  const norm = (side: Side | null): string =>
    side && side.norm !== null ? formatNumber(side.norm) : '';
  return [
    `${SIGNS[what]} ${what}`,
    shorten(item.kind === 'operation' ? item.op : item.cls, 40),
    formatCount(size(item)),
    shorten(arrow(a?.shape, b?.shape), 60),
    shorten(arrow(a?.dtype, b?.dtype), 50),
    what === 'added' ? '' : formatBytes(savedA),
    what === 'removed' ? '' : formatBytes(savedB),
    signedBytes(savedB - savedA),
    ...(gradients ? [norm(a), norm(b), change ? growthText(change) : ''] : []),
    arrow(a ? line(a) : undefined, b ? line(b) : undefined),
  ];
}
