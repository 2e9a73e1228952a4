/** The inspector's page for the whole capture. */
import { facts, h, section, sentence } from './dom';
import { formatBytes, formatCount, formatNumber, oneLine, shorten } from './format';
import { parameterNorm } from './gradients';
import { countOps } from './groups';
import { largestSavers } from './inspect-group';
import { unreachedSection } from './inspect-unreached';
import { head, itemLink } from './inspector';
import type { Inspection } from './inspection';
import type { GraphState } from './state';
import { totals } from './tree-panel';

export function inspectCapture(inspection: Inspection): Node[] {
  const { state } = inspection;
  const { record } = state;
  const note = countOps(state.tree.root, 'operation');
  const parts: Node[] = [
    head(state, state.tree.root, record.title || 'Graph', note),
    section('Capture', '', facts(captureFacts(state))),
  ];
  const bad = nonFinite(inspection);
  if (bad) parts.push(bad);
  const unreached = unreachedSection(state, state.tree.root);
  if (unreached) parts.push(unreached);
  parts.push(largestSavers(inspection, [...state.operations]));
  parts.push(section('What is counted', '', ...totals(state).map((text) => h('p', {}, text))));
  if (record.notes.length > 0) {
    const notes = record.notes.map((text) => h('li', {}, ...sentence(text)));
    parts.push(section('What this capture could not know', '', h('ul', {}, ...notes)));
  }
  return parts;
}

function captureFacts(state: GraphState): [string, string][] {
  const { record, tree, operations } = state;
  const rows: [string, string][] = [['Model', oneLine(record.model)]];
  if (record.step !== null) rows.push(['Step', formatCount(record.step)]);
  if (record.loss !== null) rows.push(['Loss', formatNumber(record.loss)]);
  rows.push(['Device', record.device]);
  rows.push(['Saved', `${formatBytes(record.saved_bytes)} · ${formatCount(record.saved_bytes)} B`]);
  const norm = parameterNorm(tree.root, operations);
  if (norm !== null) rows.push(['Gradient norm', `${formatNumber(norm)}, all parameters`]);
  return rows;
}

/** The first node that made a value which is not finite, and for which samples. */
function nonFinite({ state, select }: Inspection): HTMLElement | null {
  const found = state.record.non_finite;
  if (!found) return null;
  const parts: Node[] = [h('p', {}, ...sentence(found.text))];
  const operation = state.firstNonFinite;
  if (operation) {
    const path = state.record.modules[operation.module]?.path ?? '';
    parts.push(
      h('p', {}, 'Node: ', itemLink(operation, select), path ? ` in ${shorten(path, 60)}` : ''),
    );
  }
  if (found.samples.length > 0) parts.push(h('p', {}, samplesOf(found.samples)));
  const when = found.in_forward ? 'forward' : 'backward';
  return section('First value that is not finite', when, ...parts);
}

/** `Samples of the batch: 3, 17, 21.` */
function samplesOf(samples: readonly number[]): string {
  return `${samples.length === 1 ? 'Sample' : 'Samples'} of the batch: ${samples.join(', ')}.`;
}
