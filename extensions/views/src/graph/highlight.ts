/** A part of the graph that is lit while the rest steps back: a path, or the holders of bytes. */
import { rangeOf, type Item, type Tree } from './groups';
import type { Layout } from './layout';
import { isOperation, type Flow, type Operation } from './operations';
import { parametersIn } from './parameters';
import { within, type Storages } from './storages';
import { representatives } from './visible';

export type HighlightKind = 'path' | 'holders' | 'filter';

export class Highlight {
  /** Number of lit operations before each one, so that a box is queried in one subtraction. */
  readonly #before: Int32Array;
  #drawn: { layout: Layout; edges: Set<number> } | null = null;

  constructor(
    readonly kind: HighlightKind,
    readonly from: Item,
    readonly lit: ReadonlySet<number>,
    count: number,
  ) {
    this.#before = new Int32Array(count + 1);
    for (let id = 0; id < count; id += 1)
      this.#before[id + 1] = this.#before[id] + (lit.has(id) ? 1 : 0);
  }

  has(item: Item): boolean {
    const [start, end] = rangeOf(item);
    return this.#before[end] > this.#before[start];
  }

  /** Ids of the visible edges between what is lit; holders light no edge. */
  edges(
    layout: Layout,
    tree: Tree,
    open: Parameters<typeof representatives>[1],
    flows: readonly Flow[],
  ): ReadonlySet<number> {
    if (this.#drawn?.layout === layout) return this.#drawn.edges;
    const edges = new Set<number>();
    if (this.kind !== 'holders') {
      const shown = representatives(tree, open);
      const pairs = new Map<Item | undefined, Set<Item | undefined>>();
      for (const { from, to } of flows)
        if (this.lit.has(from) && this.lit.has(to)) {
          const targets = pairs.get(shown[from]) ?? new Set();
          pairs.set(shown[from], targets.add(shown[to]));
        }
      for (const { id, from, to } of layout.edges) if (pairs.get(from)?.has(to)) edges.add(id);
    }
    this.#drawn = { layout, edges };
    return edges;
  }
}

/** The operations by which an item's gradient reaches parameters, itself included. */
export function pathToParameters(
  item: Item,
  operations: readonly Operation[],
  flows: readonly Flow[],
): Highlight {
  const makers: number[][] = operations.map(() => []);
  for (const { from, to } of flows) makers[to]?.push(from);
  // Operations come in topological order: makers are known before what uses them.
  const reaches = operations.map(({ leaves }) => leaves.some(({ input }) => !input));
  operations.forEach((_, id) => {
    if ((makers[id] ?? []).some((maker) => reaches[maker])) reaches[id] = true;
  });
  const lit = new Set(within(item, operations).map(({ id }) => id));
  const queue = [...lit];
  for (let id = queue.pop(); id !== undefined; id = queue.pop())
    for (const maker of makers[id] ?? [])
      if (reaches[maker] && !lit.has(maker)) {
        lit.add(maker);
        queue.push(maker);
      }
  return new Highlight('path', item, lit, operations.length);
}

/** The operations that hold one of the activations which an item holds, itself included. */
export function holdersOf(
  item: Item,
  operations: readonly Operation[],
  storages: Storages,
): Highlight {
  const held = storages.distinct(item).filter(({ kind }) => kind === 'activation');
  const lit = new Set(within(item, operations).map(({ id }) => id));
  if (!isOperation(item)) {
    // Of a module only what holds something is lit, or the whole box would be.
    lit.clear();
  }
  for (const { storage } of held) for (const { id } of storages.holdersOf(storage)) lit.add(id);
  return new Highlight('holders', item, lit, operations.length);
}

/** Names of the parameters along a path, in forward order. */
export function parametersOf(highlight: Highlight, operations: readonly Operation[]): string[] {
  const lit = operations.filter(({ id }) => highlight.lit.has(id));
  return parametersIn(lit).map(({ name }) => name);
}
