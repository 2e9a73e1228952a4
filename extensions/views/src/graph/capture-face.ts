/** The face of one capture: coloured by bytes, gradients, time or dtype, with its questions. */
import { choices, h } from './dom';
import type { Controls, Face } from './face';
import type { Item } from './groups';
import type { HighlightKind } from './highlight';
import { inspectCapture } from './inspect-capture';
import { inspectGroup } from './inspect-group';
import { inspectOperation } from './inspect-operation';
import type { Inspection } from './inspection';
import { showLegend } from './legend';
import { GraphState, type Colouring } from './state';
import { leaveStep, showStep, stepSection } from './step-colours';
import { describe } from './status';
import { STYLE } from './style';
import { captureColumns } from './table-columns';
import { byteFigures, totals } from './tree-panel';
import { isOperation } from './operations';
import type { GraphView } from './view';

type View = GraphView<GraphState>;

export const CAPTURE: Face<GraphState> = {
  classes: 'wv-graph',
  style: STYLE,
  label: 'Graph. Arrow keys follow the data, Enter opens or closes, T shows a table.',
  empty: 'No graph yet. Capture a step, or call wb.graph(loss) in a cell.',
  badKey: 'N',
  tree: { heading: 'saved bytes', foot: totals, figures: byteFigures },
  open(record, limit, before) {
    const state = new GraphState(record, limit);
    state.lookLike(before);
    return state;
  },
  controls,
  inspect(view, state) {
    const { colours, selected, tree } = state;
    const inspection = {
      state,
      select: view.show,
      toggle: view.toggle,
      light: (kind: HighlightKind) => light(view, kind),
    };
    const item = selected ?? tree.root;
    const [head, ...rest] = pageOf(inspection, item);
    return [head, ...(colours ? [stepSection(state, colours, item)] : []), ...rest] as Node[];
  },
  legend: showLegend,
  columns: captureColumns,
  describe,
  colour(state, colours) {
    state.colours = colours;
  },
  key(view, key) {
    const { state } = view;
    if (key === 'Escape' && state?.colours && !view.table && !state.highlight && !state.query) {
      leaveStep(view.element);
      return true;
    }
    if (key === 'n') return showNonFinite(view);
    if (key === 'p') return light(view, 'path');
    return key === 'h' && light(view, 'holders');
  },
};

function pageOf(inspection: Inspection, item: Item): Node[] {
  if (item === inspection.state.tree.root) return inspectCapture(inspection);
  if (isOperation(item)) return inspectOperation(inspection, item);
  return inspectGroup(inspection, item);
}

function controls(view: View): Controls<GraphState> {
  const colour = choices<Colouring>(
    'Colour by',
    [
      { value: 'bytes', text: 'Bytes' },
      { value: 'gradient', text: 'Gradient norm' },
      { value: 'time', text: 'Time' },
      { value: 'dtype', text: 'Dtype' },
      { value: 'none', text: 'None' },
    ],
    'bytes',
    (value) => {
      if (view.state) view.state.colouring = value;
      leaveStep(view.element);
      view.refresh();
    },
  );
  const step = h('div', { class: 'wv-step', hidden: true });
  return {
    bar: [h('span', 'wv-label', 'Colour by'), colour.element],
    below: [],
    over: [step],
    update(state) {
      showStep(step, state);
      if (!state) return;
      colour.set(state.colours ? null : state.colouring);
      for (const value of ['gradient', 'time'] as const) colour.allow(value, state.missing(value));
    },
  };
}

/** Lights the path or the holders of the selection. */
function light(view: View, kind: HighlightKind): boolean {
  const { state } = view;
  if (!state?.selected) return false;
  state.light(kind, state.selected);
  view.refresh(state.litText());
  view.showLit(state);
  return true;
}

/** Selects the first node that made a value which is not finite. */
function showNonFinite(view: View): boolean {
  const operation = view.state?.firstNonFinite ?? null;
  if (operation) view.show(operation);
  return Boolean(operation);
}
