/** The inspector's page for one operation. */
import { facts, h, note, section, sourceSection } from './dom';
import { formatBytes, formatCount, formatSeconds, shorten } from './format';
import { numOps, type Item } from './groups';
import { questions } from './inspect-actions';
import { inspectBranch } from './inspect-branch';
import { gradientSection, parameterTable } from './inspect-gradient';
import { inspectInner } from './inspect-inner';
import { neighbours } from './inspect-neighbours';
import { head, itemLink, table, type Cell } from './inspector';
import type { Inspection } from './inspection';
import { isInner, type Operation } from './operations';
import type { GraphState } from './state';
import type { Saved } from './storages';

export function inspectOperation(inspection: Inspection, item: Operation): Node[] {
  const { state } = inspection;
  const { record } = state;
  if (item.test) return inspectBranch(inspection, item);
  if (isInner(item)) return inspectInner(inspection, item);
  const row = item.rows[item.rows.length - 1] ?? 0;
  const type = record.strings[record.node_type[row]] ?? '';
  const note = `operation ${formatCount(placeOf(state, item))} of ${formatCount(numOps(state.tree.root))}`;
  const top = head(state, item, item.op, note);
  top.append(h('div', { class: 'wv-mono', title: type }, shorten(type, 48)));
  const parts: Node[] = [top];
  const source = record.sources[item.source];
  if (item.source >= 0 && source) parts.push(sourceSection(source));
  parts.push(section('Tensors', '', facts(tensorFacts(state, item))));
  parts.push(saved(inspection, item));
  parts.push(gradientSection(state, item));
  if (item.leaves.length > 0)
    parts.push(section('Parameters', '', parameterTable(state, item.leaves, formatBytes)));
  parts.push(questions(inspection, item));
  parts.push(neighbours(state, item, inspection.select));
  return parts;
}

/** Its place among the operations of the forward: those inside compiled nodes are none. */
function placeOf({ operations }: GraphState, { id }: Operation): number {
  return operations.slice(0, id + 1).filter((one) => !isInner(one)).length;
}

function tensorFacts(state: GraphState, item: Operation): [string, string][] {
  const module = state.record.modules[item.module];
  const inputs = new Map<Operation | undefined, number>();
  for (const { from, to, bytes } of state.flows)
    if (to === item.id) inputs.set(outputFrom(state.operations[from]), bytes);
  const rows = [...inputs].slice(0, 6).map(([producer, bytes], index): [string, string] => {
    const value = `${producer?.shape ?? ''} ${producer?.dtype ?? ''} · ${formatBytes(bytes)}`;
    return [index === 0 ? 'In' : '', value];
  });
  rows.push(['Out', `${item.shape} ${item.dtype} · ${formatBytes(item.outputBytes)}`]);
  rows.push(['Computed in', item.computed]);
  if (module)
    rows.push(['Module', `${module.path || '(model)'}${module.cls ? ` · ${module.cls}` : ''}`]);
  if (item.seconds !== null) rows.push(['Forward', `${formatSeconds(item.seconds)}, all calls`]);
  return rows;
}

/** A value from compiled code is the output of its node. */
function outputFrom(operation: Operation | undefined): Operation | undefined {
  return operation?.host ?? operation;
}

/** Every tensor that the operation holds, and who else holds its storage. */
function saved({ state, select }: Inspection, item: Operation): HTMLElement {
  const held = state.storages.of(item);
  const counted = `${formatBytes(item.saved)} counted here`;
  if (held.length === 0) return section('Saved for backward', counted, note('Nothing.'));
  const rows = held
    .slice(0, 40)
    .map((one) => [one.name, one.shape, heldBy(state, one, item, select), formatBytes(one.bytes)]);
  const body = table(['Tensor', 'Shape', 'Held by', 'Bytes'], rows);
  const parts: Node[] = [body];
  if (held.length > 40) parts.push(note(`and ${formatCount(held.length - 40)} more`));
  // Below a KiB the heading has the exact figure already.
  if (item.saved >= 1024) parts.push(note(`Held here first: ${formatCount(item.saved)} B.`));
  return section('Saved for backward', counted, ...parts);
}

/** `here only`, `parameter`, or who else holds the storage, as a link: after `here` if this is the first. */
function heldBy(
  state: GraphState,
  one: Saved,
  item: Operation,
  select: (item: Item) => void,
): Cell {
  if (one.kind !== 'activation') return { text: one.kind };
  const holders = state.storages.holdersOf(one.storage);
  const others = holders.filter((other) => other !== item);
  const [first] = others;
  if (!first) return { text: 'here only' };
  const node = h('span', {}, holders[0] === item ? 'here, ' : '', itemLink(first, select, 16));
  if (others.length > 1) node.append(` + ${others.length - 1}`);
  return {
    node,
    title: others
      .slice(0, 20)
      .map(({ op }) => op)
      .join(', '),
  };
}
