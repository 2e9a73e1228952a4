/** Parameters that this loss gives no gradient, by module and by reason. */
import type { Unreached } from '@torch-workbench/records';
import { isOperation } from './operations';
import type { Group } from './groups';

export type Reason = Unreached['reason'];

/** What each reason is called over the parameters it explains, in the order they are listed. */
export const REASONS: Record<Reason, string> = {
  detached: 'Cut by detach',
  no_grad: 'Used where gradients are off',
  not_differentiable: 'Cut by an operation without a gradient',
  off_path: 'Used, but not for this loss',
  unused: 'Not used in this step',
  frozen: 'Frozen',
};

export class UnreachedIndex {
  readonly #counts = new Map<string, { all: number; frozen: number }>();
  readonly #chips = new Map<Group, string>();
  #drawn: { groups: readonly Group[]; byPath: Map<string, Group> } | null = null;

  constructor(readonly all: readonly Unreached[]) {
    for (const { name, reason } of all)
      for (let dot = name.indexOf('.'); ; dot = name.indexOf('.', dot + 1)) {
        const path = dot < 0 ? name : name.slice(0, dot);
        const count = this.#counts.get(path) ?? { all: 0, frozen: 0 };
        count.all += 1;
        if (reason === 'frozen') count.frozen += 1;
        this.#counts.set(path, count);
        if (dot < 0) break;
      }
  }

  /** Those of a module and of all it contains; the drawing itself has them all. */
  of(group: Group): readonly Unreached[] {
    if (group.kind === 'root') return this.all;
    const prefixes = pathsOf(group).map((path) => `${path}.`);
    return this.all.filter(({ name }) => prefixes.some((prefix) => name.startsWith(prefix)));
  }

  /** `3 without gradient`, `3 frozen`; empty where every parameter gets one. */
  chip(group: Group): string {
    if (this.all.length === 0 || group.kind === 'root') return '';
    const known = this.#chips.get(group) ?? this.#countChip(group);
    this.#chips.set(group, known);
    return known;
  }

  #countChip(group: Group): string {
    let [all, frozen] = [0, 0];
    for (const path of pathsOf(group)) {
      all += this.#counts.get(path)?.all ?? 0;
      frozen += this.#counts.get(path)?.frozen ?? 0;
    }
    if (all === 0) return '';
    return frozen === all ? `${all} frozen` : `${all - frozen} without gradient`;
  }

  /** The innermost drawn module that a parameter belongs to. */
  moduleOf(name: string, groups: readonly Group[], root: Group): Group {
    if (this.#drawn?.groups !== groups) {
      const byPath = new Map<string, Group>();
      for (const group of groups)
        if (group.kind === 'module' && !byPath.has(group.path)) byPath.set(group.path, group);
      this.#drawn = { groups, byPath };
    }
    for (let dot = name.lastIndexOf('.'); dot > 0; dot = name.lastIndexOf('.', dot - 1)) {
      const found = this.#drawn.byPath.get(name.slice(0, dot));
      if (found) return found;
    }
    return root;
  }
}

/** The modules a box stands for: a rolled-up box for all of its members. */
function pathsOf(group: Group): string[] {
  if (group.kind === 'module') return [group.path];
  const inside = group.children.flatMap((child) => (isOperation(child) ? [] : [child]));
  return [...new Set(inside.flatMap(pathsOf))];
}

/** Grouped by reason, in the order of `REASONS`. */
export function byReason(list: readonly Unreached[]): { reason: Reason; items: Unreached[] }[] {
  return (Object.keys(REASONS) as Reason[])
    .map((reason) => ({ reason, items: list.filter((item) => item.reason === reason) }))
    .filter(({ items }) => items.length > 0);
}
