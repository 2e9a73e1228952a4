/** The face of a diff: coloured by what became of each node, with both captures side by side. */
import type { GraphColumns } from '../graph/columns';
import type { Face } from '../graph/face';
import type { GraphView } from '../graph/view';
import type { DiffColumns } from './columns';
import { controls, show } from './controls';
import { describe } from './describe';
import { inspectDiff } from './inspect-diff';
import { inspectGroup } from './inspect-group';
import { inspectOperation } from './inspect-operation';
import { showLegend } from './legend';
import { DiffState } from './state';
import { STYLE } from './style';
import { diffColumns } from './table-columns';
import { TREE } from './tree';

export const DIFF: Face<DiffState> = {
  classes: 'wv-graph wv-diff',
  style: STYLE,
  label:
    'Diff of two graphs. Arrow keys follow the data, N and P go to the next and the previous change, Enter opens or closes, T shows a table.',
  empty: 'No diff yet. Call wb.graph(a).diff(b) with two captures.',
  badKey: '',
  tree: TREE,
  open: (record: GraphColumns, limit) => new DiffState(record as DiffColumns, { limit }),
  controls,
  inspect(view, state) {
    const { selected, tree } = state;
    if (!selected || selected === tree.root) return inspectDiff(view, state);
    if (selected.kind === 'operation') return inspectOperation(view, state, selected);
    return inspectGroup(view, state, selected);
  },
  legend: showLegend,
  columns: diffColumns,
  describe,
  key,
};

function key(view: GraphView<DiffState>, pressed: string): boolean {
  const { state } = view;
  if (pressed === 'o') show(view, !state?.onlyChanges);
  else if (pressed === 'n' || pressed === 'p') view.show(state?.nextStop(pressed === 'p') ?? null);
  else return false;
  return true;
}
