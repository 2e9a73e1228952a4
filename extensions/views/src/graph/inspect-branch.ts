/** The inspector's page for a test that Python made of a tensor. */
import { aside, facts, h, note, section, sourceSection } from './dom';
import { formatCount, oneLine, shorten } from './format';
import { head, itemLink } from './inspector';
import type { Inspection } from './inspection';
import type { Operation } from './operations';

/** More letters than this and a test does not fit its heading. */
const LONG = 28;

export function inspectBranch({ state, select }: Inspection, item: Operation): Node[] {
  const { test } = item;
  if (!test) return [];
  const { record } = state;
  const { first, times, before, after, condition, word } = test;
  const outcome = first.taken ? 'True' : 'False';
  const parts: Node[] = [
    head(state, item, `${word} ${condition}`, `Python tested a tensor: ${outcome}`),
  ];
  const source = record.sources[item.source];
  if (source) parts.push(sourceSection(source));
  const rows: [string, string][] = [];
  if (first.values) rows.push(['Compared', first.values]);
  rows.push(['Result', outcome]);
  if (times > 1) rows.push(['Tested', `${formatCount(times)} times here; the first is shown`]);
  const module = record.modules[first.module];
  if (module) rows.push(['Module', `${shorten(module.path, 80) || '(model)'} · ${module.cls}`]);
  const list = h('div', {});
  for (const [label, other] of [
    ['tests the output of', before],
    ['made next:', after],
  ] as const)
    if (other) list.append(h('p', {}, aside(`${label} `), itemLink(other, select)));
  const whole = h('div', 'wv-code wv-wrap', oneLine(condition));
  parts.push(section('Test', '', ...(condition.length > LONG ? [whole] : []), facts(rows)));
  parts.push(section('Around it', '', list, note(SHAPED)));
  return parts;
}

const SHAPED = 'No gradient flows through a test. It decided which operations there are.';
