/** The inspector's page for a module, a rolled-up box or folded neighbours of a diff. */
import { button, h, section } from '../graph/dom';
import { formatBytes, formatCount } from '../graph/format';
import { countRepeats, type Group } from '../graph/groups';
import { head, table } from '../graph/inspector';
import type { GraphView } from '../graph/view';
import { changes } from './inspect-diff';
import { stateLine } from './inspect-operation';
import { parametersOf } from './parameters';
import type { DiffState } from './state';
import type { Total } from './totals';
import { signedBytes, signedCount } from './words';

export function inspectGroup(view: GraphView<DiffState>, state: DiffState, item: Group): Node[] {
  const title = item.kind === 'repeat' ? `${item.title} × ${countRepeats(item)}` : item.title;
  const top = head(state, item, title, item.cls || 'part of the forward pass');
  top.append(stateLine(state.index.state(item)));
  const parts: Node[] = [
    top,
    section('Module', '', table(['', 'A', 'B', 'B − A'], rowsOf(state, item))),
  ];
  for (const kind of ['removed', 'added', 'changed'] as const) {
    const list = changes(view, state, item, kind);
    if (list) parts.push(list);
  }
  const text = state.open.has(item) ? 'Collapse' : 'Open';
  const open = button(text, () => view.toggle(item), {}, 'Enter');
  return [...parts, h('section', 'wv-sec', open)];
}

function rowsOf(state: DiffState, item: Group): Total[] {
  const { index } = state;
  const all = item.end - item.start;
  const inA = all - index.count(item, 'added');
  const inB = all - index.count(item, 'removed');
  const { a, b } = index.saved(item);
  const changed = index.count(item, 'changed');
  const { same, removed, added, changed: other } = parametersOf(state, item);
  const [before, after] = [same + other + removed, same + other + added];
  return [
    ['Operations', formatCount(inA), formatCount(inB), signedCount(inB - inA)],
    ...(changed > 0 ? [['Changed', '', '', formatCount(changed)] as Total] : []),
    ['Parameters', formatCount(before), formatCount(after), signedCount(after - before)],
    ['Saved', formatBytes(a), formatBytes(b), signedBytes(b - a)],
  ];
}
