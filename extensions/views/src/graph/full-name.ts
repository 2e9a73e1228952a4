/** What an item is called in a sentence, where no tree around it says which module it is in. */
import type { GraphColumns } from './columns';
import type { Item } from './groups';
import { isOperation } from './operations';
import { nameOf } from './tree-panel';

/**
 * The qualified name of a module, `stem.0`, as in `model.get_submodule`; `layers.0 … 5` for equal
 * neighbours rolled into one box; `relu in block1` for a call inside a larger module.
 */
export function fullName(item: Item, record: GraphColumns): string {
  if (isOperation(item)) {
    const path = record.modules[item.module]?.path ?? '';
    const call = / \(call \d+\)$/.exec(item.name)?.[0] ?? '';
    const own = item.name.slice(0, item.name.length - call.length);
    if (path === own || path.endsWith(`.${own}`)) return path + call;
    return path ? `${item.op} in ${path}` : item.op;
  }
  if (item.kind === 'module' && item.path) {
    const call = / \(call \d+\)$/.exec(item.title)?.[0] ?? '';
    return item.path + call;
  }
  if (item.kind === 'repeat' && item.path) {
    const to = item.title.lastIndexOf(' … ');
    return to < 0 ? item.path : item.path + item.title.slice(to);
  }
  return nameOf(item);
}
