/**
 * The module hierarchy as a tree of boxes.
 *
 * A group is one *contiguous* range of the forward order, so a module that is called twice is two
 * groups and the boxes of one parent never depend on each other in a circle. Kinds besides the
 * root: a call of a module; `repeat`, three or more equal neighbours rolled into one box; `chunk`, a
 * range of a list too long to lay out or look at (an unrolled loop); `compiled`, a compiled operation
 * with what it runs inside (`inner.ts`); and `fold`, a range that the drawing leaves out (see `Fold`).
 */
import type { GraphColumns } from './columns';
import { plural } from './format';
import { isInner, isOperation, type Operation } from './operations';
import { rollUp } from './rollup';

export interface Group {
  kind: 'root' | 'module' | 'repeat' | 'chunk' | 'compiled' | 'fold';
  id: number;
  title: string;
  /** Qualified module name. */
  path: string;
  cls: string;
  parent: Group | null;
  children: Item[];
  /** First and one past the last operation. */
  start: number;
  end: number;
  saved: number;
  /** How many of its operations run inside compiled nodes. */
  inner: number;
  /** Seconds of its forwards, all calls together; null where they were not watched. */
  seconds: number | null;
}

export type Item = Group | Operation;

export interface Tree {
  root: Group;
  groups: Group[];
  /** Parent box of every operation. */
  parents: Group[];
}

/** Builds the tree over operations in forward order. */
export function buildTree(
  record: GraphColumns,
  operations: readonly Operation[],
  fold?: Fold,
): Tree {
  const groups: Group[] = [];
  const make = (kind: Group['kind'], module: number, start: number): Group => {
    const info = record.modules[module];
    const path = info?.path ?? '';
    const group: Group = {
      kind,
      id: groups.length,
      title: path === '' ? record.model : leafName(path, record.modules[info?.parent ?? -1]?.path),
      path,
      cls: info?.cls ?? '',
      parent: null,
      children: [],
      start,
      end: start,
      saved: 0,
      inner: 0,
      seconds: info?.forward_s ?? null,
    };
    groups.push(group);
    return group;
  };
  const root = make('root', -1, 0);
  root.title = record.model || record.title;
  nest(record, operations, root, make);
  numberCalls(root, operations);
  rollUp(root, make, fold);
  const parents: Group[] = [];
  link(root, operations, parents);
  return { root, groups: groups.filter((g) => g === root || g.parent !== null), parents };
}

export type Make = (kind: Group['kind'], module: number, start: number) => Group;
/** Replaces ranges of a box's children by groups of kind `fold`. */
export type Fold = (children: Item[], make: Make) => Item[];

function nest(record: GraphColumns, operations: readonly Operation[], root: Group, make: Make) {
  const chains = record.modules.map((_, module) => chainOf(record, module));
  const open: { module: number; group: Group }[] = [];
  for (const operation of operations) {
    const chain = chainAround(operation, chains);
    let depth = 0;
    while (depth < open.length && depth < chain.length && open[depth]?.module === chain[depth])
      depth += 1;
    open.length = depth;
    for (; depth < chain.length; depth += 1) {
      const module = chain[depth] ?? -1;
      const kind = module < 0 ? 'compiled' : 'module';
      const group = make(kind, module, operation.id);
      if (kind === 'compiled') group.title = kind;
      (open[depth - 1]?.group ?? root).children.push(group);
      open.push({ module, group });
    }
    (open[open.length - 1]?.group ?? root).children.push(operation);
  }
}

/** Modules from the outermost to `module`; the unnamed root is the drawing itself. */
function chainOf(record: GraphColumns, module: number): number[] {
  const chain: number[] = [];
  for (let at = module; at >= 0 && chain.length < 1000; at = record.modules[at]?.parent ?? -1)
    if (record.modules[at]?.path !== '') chain.push(at);
  return chain.reverse();
}

/** The same of an operation; inside a compiled one, that comes between its modules and the others. */
function chainAround({ module, host }: Operation, chains: readonly number[][]): number[] {
  const chain = chains[module] ?? [];
  if (!host) return chain;
  const outer = chains[host.module] ?? [];
  const below = outer.every((one, depth) => chain[depth] === one);
  return [...outer, -1 - host.id, ...chain.slice(below ? outer.length : 0)];
}

function leafName(path: string, parent: string | undefined): string {
  return parent && path.startsWith(`${parent}.`) ? path.slice(parent.length + 1) : path;
}

/**
 * Marks the second and later calls of one module: `cell`, `cell (call 2)`. Ranges that have
 * nothing in common are no two calls: `blocks[0]` and `blocks[1:]` of a list that is never called.
 */
function numberCalls(group: Group, operations: readonly Operation[], word = 'call'): void {
  const calls = new Map<string, number>();
  for (const child of group.children) {
    if (isOperation(child)) continue;
    // Of two captures each counts its own calls.
    let call = 0;
    const parts = child.children.map((part) =>
      part.kind === 'module' && word === 'call' ? part.path : child.path,
    );
    for (const side of [1, 2])
      if ((operations[child.start]?.sides ?? 0) & side)
        for (const part of new Set(parts)) {
          const count = (calls.get(side + part) ?? 0) + 1;
          calls.set(side + part, count);
          call = Math.max(call, count);
        }
    // Compiled backward code takes up a module where it likes: its boxes are parts of one call.
    if (call > 1 && child.kind === 'module') child.title = `${child.title} (${word} ${call})`;
    numberCalls(child, operations, child.kind === 'compiled' ? 'part' : word);
  }
}

/** Sets parents, ranges and sums, and names the chunks, once the shape of the tree is final. */
function link(group: Group, operations: readonly Operation[], parents: Group[]): void {
  group.saved = group.inner = 0;
  let end = -1;
  let start = operations.length;
  for (const child of group.children) {
    if (isOperation(child)) parents[child.id] = group;
    else {
      child.parent = group;
      link(child, operations, parents);
    }
    start = Math.min(start, isOperation(child) ? child.id : child.start);
    end = Math.max(end, isOperation(child) ? child.id + 1 : child.end);
    group.saved += child.saved;
    group.inner += isOperation(child) ? Number(isInner(child)) : child.inner;
  }
  if (group.kind === 'repeat') group.seconds = sumSeconds(group);
  group.start = Math.min(start, operations.length);
  group.end = Math.max(end, group.start);
  if (group.kind === 'chunk')
    group.title = `${(group.start + 1).toLocaleString('en')} – ${group.end.toLocaleString('en')}`;
}

/** Seconds of the members of a box; null where one is not known or they are one module's calls. */
function sumSeconds(group: Group): number | null {
  const members = group.children.flatMap((child) => (isOperation(child) ? [] : [child]));
  const paths = new Set(members.map(({ path }) => path));
  const known = members.every(({ seconds }) => seconds !== null) && paths.size === members.length;
  return known ? members.reduce((sum, { seconds }) => sum + (seconds ?? 0), 0) : null;
}

/** First and one past the last operation of an item. */
export function rangeOf(item: Item): [start: number, end: number] {
  return isOperation(item) ? [item.id, item.id + 1] : [item.start, item.end];
}

/** Number of operations in a box. */
export function size(item: Item): number {
  return isOperation(item) ? 1 : item.end - item.start;
}

/** Whether all of it runs inside a compiled node. */
export function isInside(item: Item): boolean {
  return isOperation(item) ? isInner(item) : item.inner === size(item);
}

/** What a box holds; what runs inside compiled nodes counts only for their boxes and in them. */
export function numOps(item: Item): number {
  if (isOperation(item)) return 1;
  return item.kind === 'compiled' || isInside(item) ? item.inner : size(item) - item.inner;
}

/** `5 ops`, `37 backward ops` for a compiled operation. */
export function countOps(item: Group, word = 'op'): string {
  return plural(numOps(item), item.kind === 'compiled' ? `backward ${word}` : word);
}

/** Members of a rolled-up box, counted through the chunks a long one is cut into. */
export function countRepeats(group: Group): number {
  return group.children.reduce(
    (count, child) =>
      count + (!isOperation(child) && child.kind === 'chunk' ? countRepeats(child) : 1),
    0,
  );
}
