/** The inspector's page for a module, a rolled-up box or a range of a long list. */
import { button, facts, h, note, section } from './dom';
import { formatBytes, formatCount, formatNumber, formatSeconds, oneLine } from './format';
import { fullName } from './full-name';
import { outputOf, parameterNorm } from './gradients';
import { countRepeats, isInside, numOps, type Group } from './groups';
import { checkpointSection, questions } from './inspect-actions';
import { outputSection } from './inspect-gradient';
import { compiledSection } from './inspect-inner';
import { unreachedSection } from './inspect-unreached';
import { head, operationRow, table } from './inspector';
import type { Inspection } from './inspection';
import type { Operation } from './operations';
import type { GraphState } from './state';

export function inspectGroup(inspection: Inspection, item: Group): Node[] {
  const { state } = inspection;
  const title = item.kind === 'repeat' ? `${item.title} × ${countRepeats(item)}` : item.title;
  const parts: Node[] = [
    head(state, item, title, item.cls || groupNote(item)),
    section('Module', '', facts(moduleFacts(state, item))),
  ];
  if (isInside(item)) {
    const host = state.operations[item.start]?.host;
    return [...parts, compiledSection(host, inspection.select), openButton(inspection, item)];
  }
  const unreached = unreachedSection(state, item);
  if (unreached) parts.push(unreached);
  const gradient = gradientSection(state, item);
  if (gradient) parts.push(gradient);
  parts.push(largestSavers(inspection, state.operations.slice(item.start, item.end)));
  parts.push(questions(inspection, item));
  const checkpoint = checkpointSection(state, item);
  if (checkpoint) parts.push(checkpoint);
  parts.push(openButton(inspection, item));
  return parts;
}

function groupNote({ kind }: Group): string {
  return kind === 'compiled' ? 'backward operations in compiled code' : 'part of the forward pass';
}

function openButton({ state, toggle }: Inspection, item: Group): HTMLElement {
  const text = state.open.has(item) ? 'Collapse' : 'Open';
  const open = button(text, () => toggle(item), {}, 'Enter');
  return h('section', 'wv-sec', open);
}

function moduleFacts(state: GraphState, item: Group): [string, string][] {
  const share = state.tree.root.saved > 0 ? (item.saved / state.tree.root.saved) * 100 : 0;
  const rows: [string, string][] = [
    ['Operations', formatCount(numOps(item))],
    ['Saved', `${formatBytes(item.saved)} · ${share.toFixed(share < 10 ? 1 : 0)} % of the graph`],
    ['Exactly', `${formatCount(item.saved)} B`],
  ];
  if (isInside(item)) rows.splice(1);
  if (item.seconds !== null) rows.push(['Forward', `${formatSeconds(item.seconds)}, all calls`]);
  const norm = parameterNorm(item, state.operations);
  if (norm !== null) rows.push(['Gradient norm', `${formatNumber(norm)}, its parameters`]);
  if (item.path) rows.push(['Path', oneLine(fullName(item, state.record).slice(0, 400))]);
  const last = outputOf(item, state.operations);
  if (last) rows.push(['Out', `${last.shape} ${last.dtype}`]);
  return rows;
}

function gradientSection(state: GraphState, item: Group): HTMLElement | null {
  if (!state.record.gradients) return null;
  return outputSection(state, outputOf(item, state.operations));
}

/** The operations that hold most for backward. */
export function largestSavers(
  { state, select }: Inspection,
  operations: readonly Operation[],
): HTMLElement {
  const top = operations
    .filter(({ saved: bytes }) => bytes > 0)
    .sort((a, b) => b.saved - a.saved)
    .slice(0, 8);
  const rows = top.map((item) => operationRow(state, item, item.saved, select));
  const none = note('Nothing is saved for backward here.');
  return section('Largest savers', '', rows.length > 0 ? table([], rows) : none);
}
