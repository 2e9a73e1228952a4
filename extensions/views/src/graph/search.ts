/**
 * Finds operations and modules by name, module path, parameter, shape or backward type. A parameter
 * without a gradient is found at the innermost drawn module around it.
 */
import type { Item } from './groups';
import type { GraphState } from './state';

const MOST = 1000;

/** Items whose words contain every word of the query, modules first, then in forward order. */
export function find(state: GraphState, query: string): Item[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const fits = (text: string): boolean => {
    const lower = text.toLowerCase();
    return words.every((word) => lower.includes(word));
  };
  const groups = state.tree.groups.filter(
    (group) => group.kind === 'module' && fits(`${group.path} ${group.cls}`),
  );
  const homes = state.record.unreached
    .filter(({ name, reason }) => fits(`${name} ${reason}`))
    .slice(0, MOST)
    .map(({ name }) => state.unreached.home(name, state.tree.groups, state.tree.root));
  const operations: Item[] = [];
  for (const operation of state.operations) {
    if (groups.length + operations.length >= MOST) break;
    const path = state.record.modules[operation.module]?.path ?? '';
    const leaves = operation.leaves.map(({ name }) => name).join(' ');
    if (fits(`${operation.op} ${operation.type} ${path} ${operation.shape} ${leaves}`))
      operations.push(operation);
  }
  return [...new Set([...groups, ...homes, ...operations])].slice(0, MOST);
}
