/** The columns of a capture's table: what is not known of a record gets none. */
import { outcome } from './branches';
import { sourceLabel } from './dom';
import { formatBytes, formatCount, formatNumber, formatSeconds, shorten } from './format';
import { outputGradient } from './gradients';
import { isInside, numOps, type Item } from './groups';
import type { GraphState } from './state';
import { normText, stepName } from './step-colours';
import { isOperation } from './operations';
import type { Columns } from './table';

const HEADINGS = ['Call', 'Operations', 'Output', 'Computed in', 'Saved here first', 'Held before'];

export function captureColumns(state: GraphState): Columns {
  const { colours } = state;
  const step = colours ? [`Parameter gradient, ${stepName(colours)}`] : [];
  const gradient = state.missing('gradient') ? [] : ['Output gradient', 'Non-finite'];
  const time = state.missing('time') ? [] : ['Forward'];
  const unreached = state.record.unreached.length > 0 ? ['Without gradient'] : [];
  return {
    headings: [...HEADINGS, ...step, ...gradient, ...time, ...unreached, 'Source'],
    titles: { 'Output gradient': 'L2 norm of the gradient of the output, not of parameters' },
    cells: (item) => cellsOf(state, item),
  };
}

function cellsOf(state: GraphState, item: Item): string[] {
  const operation = isOperation(item) ? item : null;
  const known = !isInside(item);
  const source = operation ? state.record.sources[operation.source] : undefined;
  return [
    shorten(!isOperation(item) ? item.cls : item.test ? outcome(item.test) : item.op, 40),
    operation?.test ? '' : formatCount(numOps(item)),
    shorten(operation?.shape ?? '', 40),
    shorten(operation?.computed ?? '', 40),
    known ? formatBytes(item.saved) : '',
    operation && known ? formatBytes(operation.shared) : '',
    ...knownCells(state, item),
    shorten(source ? sourceLabel(source) : '', 48),
  ];
}

function knownCells(state: GraphState, item: Item): string[] {
  const cells: string[] = [];
  if (state.colours) {
    const found = state.colours.normOf(item, state);
    cells.push(found ? normText(found.norm) : '');
  }
  if (!state.missing('gradient')) {
    const gradient = outputGradient(item, state.operations);
    const none = isInside(item) ? '' : 'did not run';
    cells.push(gradient ? formatNumber(gradient.norm) : none);
    cells.push(gradient ? formatCount(gradient.nonFinite) : '');
  }
  if (!state.missing('time')) cells.push(item.seconds === null ? '' : formatSeconds(item.seconds));
  if (state.record.unreached.length > 0)
    cells.push(isOperation(item) ? '' : state.unreached.chip(item));
  return cells;
}
