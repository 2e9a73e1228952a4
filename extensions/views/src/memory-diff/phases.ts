/** The timelines as numbers: the largest moment of every phase in A and in B. */
import { signedBytes } from '../diff/words';
import { h } from '../graph/dom';
import { formatBytes, shorten } from '../graph/format';
import { inOrder, pair as pairUp } from './align';
import type { Pair } from './pair';
import type { Side } from './side';
import { shareOf } from './words';

type Phase = ReturnType<typeof inOrder>[number];

/** A phase of A, of B, or of both. */
interface PhasePair {
  name: string;
  a: Phase | null;
  b: Phase | null;
}

/** One row per phase in order, and one for all. */
export function phasesTable(pair: Pair): HTMLElement {
  const body = h('tbody', {});
  const whole = (side: Side): Phase => ({ name: '', start: 0, end: side.series.length - 1 });
  const all = { name: 'Whole recording', a: whole(pair.a), b: whole(pair.b) };
  for (const phase of [...phasePairs(pair), all]) body.append(rowOf(pair, phase));
  const heads = ['Largest moment of', 'A', 'B', 'B − A', 'of A'];
  const head = h('tr', {}, ...heads.map((text) => h('th', { scope: 'col' }, text)));
  const caption = h('caption', {}, 'Live bytes at the largest moment of each phase');
  return h('table', { class: 'wv-phases' }, caption, h('thead', {}, head), body);
}

function phasePairs({ a, b }: Pair): PhasePair[] {
  const [ofA, ofB] = [inOrder(a.record.phases), inOrder(b.record.phases)];
  const found: PhasePair[] = [];
  let [i, j] = [0, 0];
  const alone = (untilA: number, untilB: number): void => {
    for (; i < untilA; i += 1) found.push({ name: ofA[i]?.name ?? '', a: ofA[i] ?? null, b: null });
    for (; j < untilB; j += 1) found.push({ name: ofB[j]?.name ?? '', a: null, b: ofB[j] ?? null });
  };
  for (const [first, second] of pairUp(ofA, ofB)) {
    alone(ofA.indexOf(first), ofB.indexOf(second));
    found.push({ name: first.name, a: first, b: second });
    [i, j] = [i + 1, j + 1];
  }
  alone(ofA.length, ofB.length);
  return found;
}

function largest({ series }: Side, phase: Phase | null): number | null {
  if (!phase) return null;
  let most = 0;
  for (let at = phase.start; at <= phase.end; at += 1) most = Math.max(most, series.total[at] ?? 0);
  return most;
}

function rowOf({ a, b }: Pair, phase: PhasePair): HTMLElement {
  const [before, after] = [largest(a, phase.a), largest(b, phase.b)];
  const change = (after ?? 0) - (before ?? 0);
  const counts = { blocksBefore: 0, blocksAfter: 0, what: phase.name };
  const row = { ...counts, before: before ?? 0, after: after ?? 0, change };
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, shorten(phase.name, 60)),
    h('td', {}, before === null ? '–' : formatBytes(before)),
    h('td', {}, after === null ? '–' : formatBytes(after)),
    h('td', { class: 'wv-change' }, signedBytes(change)),
    h('td', {}, shareOf(row)),
  );
}
