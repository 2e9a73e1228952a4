/** The inspector's page for an operation inside a compiled node. */
import { facts, note, section, sourceSection } from './dom';
import { oneLine } from './format';
import type { Item } from './groups';
import { itemLink, head } from './inspector';
import { neighbours } from './inspect-neighbours';
import type { Inspection } from './inspection';
import type { Operation } from './operations';

export function inspectInner({ state, select }: Inspection, item: Operation): Node[] {
  const { record } = state;
  const parts: Node[] = [head(state, item, item.op, 'backward operation in compiled code')];
  const source = record.sources[item.source];
  if (item.source >= 0 && source) parts.push(sourceSection(source));
  const module = record.modules[item.module];
  const out = `${item.shape} ${item.dtype}`.trim();
  const rows: [string, string][] = [['Gives', oneLine(out) || 'not known']];
  if (module) rows.push(['Module', oneLine(`${module.path || '(model)'} · ${module.cls}`)]);
  parts.push(section('Tensors', '', facts(rows)), compiledSection(item.host, select));
  parts.push(neighbours(state, item, select));
  return parts;
}

/** What cannot be known in there, and why. */
export function compiledSection(
  host: Operation | null | undefined,
  select: (item: Item) => void,
): HTMLElement {
  const text =
    'The compiler fuses these operations, so none has bytes or a gradient of its own; the compiled operation has both:';
  const body = note(text);
  if (host) body.append(' ', itemLink(host, select));
  return section('Bytes and gradient', '', body);
}
