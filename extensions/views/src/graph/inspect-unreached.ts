/** "Why no gradient?": the parameters that this loss does not reach, by reason, with the cut. */
import { aside, h, section, sentence, sourceLink } from './dom';
import { plural, shorten } from './format';
import type { Group } from './groups';
import type { GraphState } from './state';
import { byReason, REASONS } from './unreached';

const MOST = 200;

/** The section of a module or of the whole capture; null where every parameter gets a gradient. */
export function unreachedSection(state: GraphState, group: Group): HTMLElement | null {
  const all = state.unreached.of(group);
  if (all.length === 0) return null;
  const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (name: string): boolean =>
    words.length > 0 && words.every((word) => name.toLowerCase().includes(word));
  const parts = byReason(all).map(({ reason, items }) => {
    const list = h('ul', 'wv-unreached');
    for (const { name, text, source } of items.slice(0, MOST)) {
      const entry = h('li', { 'data-found': isFound(name) });
      entry.append(h('code', { title: shorten(name, 300) }, shorten(name, 60)));
      entry.append(aside(' ', ...sentence(text), ' '));
      const line = state.record.sources[source];
      if (source >= 0 && line) entry.append(sourceLink(line));
      list.append(entry);
    }
    if (items.length > MOST)
      list.append(h('li', 'wv-note', `and ${items.length - MOST} more: search by name`));
    const open = reason !== 'frozen' || items.some(({ name }) => isFound(name));
    const title = h('summary', {}, `${REASONS[reason]} (${items.length})`);
    return h('details', { open }, title, list);
  });
  return section('Why no gradient?', plural(all.length, 'parameter'), ...parts);
}
