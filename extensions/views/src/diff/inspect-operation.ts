/** The inspector's page for one operation of a diff: both sides of everything known about it. */
import { h, note, section, sourceSection } from '../graph/dom';
import { formatBytes, formatCount, formatNumber, oneLine, shorten } from '../graph/format';
import { neighbours } from '../graph/inspect-neighbours';
import { head, table, type Cell } from '../graph/inspector';
import type { Operation } from '../graph/operations';
import type { GraphView } from '../graph/view';
import { SIGNS, stateOf, type Change, type DiffState as State, type Side } from './change';
import type { DiffState } from './state';
import type { Total } from './totals';
import { growthText, signedBytes, STATES } from './words';

export function inspectOperation(
  view: GraphView<DiffState>,
  state: DiffState,
  item: Operation,
): Node[] {
  const change = state.index.of(item.id);
  const count = `operation ${formatCount(item.id + 1)} of ${formatCount(state.operations.length)}`;
  const top = head(state, item, item.op, count);
  top.append(stateLine(change.state));
  const parts: Node[] = [top, ...sources(state, change)];
  if (item.compiled) parts.push(section('Compiled', '', h('p', {}, NOT_INSIDE)));
  parts.push(section('Tensors', 'A → B', table(['', 'A', 'B', ''], rowsOf(change))));
  const nodes = nodesOf(change);
  if (nodes) parts.push(nodes);
  if (item.leaves.length > 0) parts.push(parameters(state, item));
  parts.push(neighbours(state, item, view.show));
  return parts;
}

/** A diff holds no insides: the two compilers' operations have no names to match by. */
const NOT_INSIDE =
  'One node of the graph for a whole compiled region. What it runs inside is not compared: open the graph of a capture and this box in it.';

/** `− removed: only in A`. */
export function stateLine(state: State): HTMLElement {
  const mark = h('i', { class: `sign ${state}`, 'aria-hidden': 'true' }, SIGNS[state]);
  return h('div', 'wv-state', mark, STATES[state]);
}

/** A's line, and B's where it is another one; a click requests the host to open it. */
function sources(state: DiffState, { a, b }: Change): HTMLElement[] {
  const partOf = (side: Side | null, name: string): HTMLElement | null => {
    const source = side && state.record.sources[side.source];
    if (!source) return null;
    const element = sourceSection(source);
    element.querySelector('h3')?.firstChild?.replaceWith(name);
    return element;
  };
  const both = a && b && a.source === b.source;
  if (both) return [partOf(a, 'Source')].filter((one) => one !== null);
  return [partOf(a, 'Source in A'), partOf(b, 'Source in B')].filter((one) => one !== null);
}

function rowsOf(change: Change): (string | Cell)[][] {
  const { a, b } = change;
  const text = (name: string, of: (side: Side) => string): Total => {
    const [before, after] = [a ? of(a) : '–', b ? of(b) : '–'];
    return [name, before, after, a && b && before !== after ? '≠' : ''];
  };
  const bytes = (name: string, of: (side: Side) => number): Total => [
    name,
    a ? formatBytes(of(a)) : '–',
    b ? formatBytes(of(b)) : '–',
    signedBytes((b ? of(b) : 0) - (a ? of(a) : 0)),
  ];
  const norm = ({ norm: value }: Side): string =>
    value === null ? 'unknown' : formatNumber(value);
  const gradient = text('Gradient', norm);
  gradient[3] = growthText(change);
  return [
    text('Output', ({ shape }) => shape).map(breakable),
    text('Dtype', ({ dtype }) => dtype),
    bytes('Held first', ({ saved }) => saved),
    bytes('Held before', ({ shared }) => shared),
    gradient,
  ];
}

/** A shape that may go on in a second line, after a ×: two long ones stand side by side. */
function breakable(text: string): Cell {
  const parts = text.split('×').join('×\u200b');
  return { node: h('span', 'wv-wrap', shorten(parts, 80)), title: text };
}

/** Backward nodes that left or joined an operation which both captures have. */
function nodesOf({ left, joined }: Change): HTMLElement | null {
  if (left.length + joined.length === 0) return null;
  const line = (sign: string, kind: string, types: readonly string[]): HTMLElement[] =>
    [...new Set(types)].map((type) => {
      const times = types.filter((one) => one === type).length;
      const mark = h('i', { class: `sign ${kind}`, 'aria-hidden': 'true' }, sign);
      const text = ` ${shorten(type, 40)}${times > 1 ? ` × ${times}` : ''}`;
      return h('p', {}, mark, h('span', 'wv-mono', text));
    });
  const lines = [...line(SIGNS.removed, 'removed', left), ...line(SIGNS.added, 'added', joined)];
  return section('Backward nodes', `${left.length} left, ${joined.length} joined`, ...lines);
}

const MOST = 40;

function parameters({ diff }: DiffState, { leaves }: Operation): HTMLElement {
  const { node_gradient_norm: inA, node_gradient_norm_b: inB } = diff;
  const norm = (value: number): string => (Number.isNaN(value) ? '–' : formatNumber(value));
  const rows = leaves.slice(0, MOST).map((leaf): (string | Cell)[] => {
    const of = stateOf(diff, leaf.row);
    const a = of === 'added' ? NaN : Number(inA[leaf.row]);
    return [
      { text: oneLine(leaf.name.split('.').pop() ?? leaf.name), title: leaf.name },
      { text: of === 'same' ? '' : SIGNS[of], title: STATES[of] },
      leaf.shape,
      ...(diff.gradients ? [norm(a), norm(Number(inB[leaf.row]))] : []),
    ];
  });
  const headings = ['Name', '', 'Shape', ...(diff.gradients ? ['Norm A', 'Norm B'] : [])];
  const parts: Node[] = [table(headings, rows)];
  if (leaves.length > MOST) parts.push(note(`and ${leaves.length - MOST} more`));
  return section('Parameters', '', ...parts);
}
