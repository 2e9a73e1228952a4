/** The inspector's page for one operation. */
import { facts, h, note, section, sourceCard } from './dom';
import { formatBytes, formatCount, formatSeconds, shorten } from './format';
import type { Item } from './groups';
import { questions } from './inspect-actions';
import { gradientSection, parameterTable } from './inspect-gradient';
import { neighbours } from './inspect-neighbours';
import { head, itemLink, table, type Cell } from './inspector';
import type { Inspection } from './inspection';
import type { Operation } from './operations';
import type { GraphState } from './state';
import type { Saved } from './storages';

export function inspectOperation(inspection: Inspection, item: Operation): Node[] {
  const { state } = inspection;
  const { record } = state;
  const row = item.rows[item.rows.length - 1] ?? 0;
  const type = record.strings[Number(record.node_type[row])] ?? '';
  const note = `operation ${formatCount(item.id + 1)} of ${formatCount(state.operations.length)}`;
  const top = head(state, item, item.op, note);
  top.append(h('div', { class: 'wv-mono', title: type }, shorten(type, 48)));
  const parts: Node[] = [top];
  const source = record.sources[item.source];
  if (item.source >= 0 && source) parts.push(sourceCard(source));
  parts.push(section('Tensors', '', facts(tensorFacts(state, item))));
  parts.push(saved(inspection, item));
  parts.push(gradientSection(state, item));
  if (item.leaves.length > 0)
    parts.push(section('Parameters', '', parameterTable(state, item.leaves, formatBytes)));
  parts.push(questions(inspection, item));
  parts.push(neighbours(state, item, inspection.select));
  return parts;
}

function tensorFacts(state: GraphState, item: Operation): [string, string][] {
  const module = state.record.modules[item.module];
  const inputs = state.flows.filter(({ to }) => to === item.id).slice(0, 6);
  const rows: [string, string][] = inputs.map(({ from, bytes }, index) => {
    const producer = state.operations[from];
    const value = `${producer?.shape ?? ''} ${producer?.dtype ?? ''} · ${formatBytes(bytes)}`;
    return [index === 0 ? 'In' : '', value];
  });
  rows.push(['Out', `${item.shape} ${item.dtype} · ${formatBytes(item.outputBytes)}`]);
  if (module)
    rows.push(['Module', `${module.path || '(model)'}${module.cls ? ` · ${module.cls}` : ''}`]);
  if (item.seconds !== null) rows.push(['Forward', `${formatSeconds(item.seconds)}, all calls`]);
  return rows;
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
