/**
 * Finds operations and modules by name, module path, parameter, shape or backward type, and by the
 * words of the drawing (`Drawing.words`, `Drawing.homes`).
 */
import type { Item } from './groups';
import type { Drawing } from './drawing';

const MOST = 1000;

/** Items whose words contain every word of the query, modules first, then in forward order. */
export function find(state: Drawing, query: string): Item[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const fits = (text: string): boolean => {
    const lower = text.toLowerCase();
    return words.every((word) => lower.includes(word));
  };
  const groups = state.tree.groups.filter(
    (group) => group.kind === 'module' && fits(`${group.path} ${group.cls}`),
  );
  const homes = state.homes?.(fits) ?? [];
  const operations: Item[] = [];
  for (const operation of state.operations) {
    if (groups.length + operations.length >= MOST) break;
    const path = state.record.modules[operation.module]?.path ?? '';
    const leaves = operation.leaves.map(({ name }) => name).join(' ');
    if (
      fits(
        `${operation.op} ${operation.type} ${path} ${operation.shape} ${leaves} ${state.words?.(operation) ?? ''}`,
      )
    )
      operations.push(operation);
  }
  return [...new Set([...groups, ...homes, ...operations])].slice(0, MOST);
}
