/** Which of the two captures a drawn line is of. */
import type { Drawing } from '../graph/drawing';
import type { Layout, Line } from '../graph/layout';
import type { Item } from '../graph/groups';
import { representatives } from '../graph/visible';
import type { DiffState } from './change';
import type { DiffColumns } from './columns';

const IN_A = 1;
const IN_B = 2;

export class LineSides {
  /** Per pair of operations: in A, in B or in both. */
  readonly #flows = new Map<number, number>();
  #drawn: { layout: Layout; sides: Uint8Array } | null = null;

  constructor(
    record: DiffColumns,
    private readonly drawing: Drawing,
  ) {
    const { length } = drawing.operations;
    for (let edge = 0; edge < record.edge_from.length; edge += 1) {
      const from = drawing.operationOf(Number(record.edge_from[edge]));
      const to = drawing.operationOf(Number(record.edge_to[edge]));
      if (!from || !to || from === to) continue;
      const key = from.id * length + to.id;
      this.#flows.set(key, (this.#flows.get(key) ?? 0) | sidesOf(Number(record.edge_state[edge])));
    }
  }

  /** `removed` and `added` are lines that only A and only B have. */
  of(line: Line): Exclude<DiffState, 'changed'> {
    const all = this.#ofEdges();
    const sides = line.edges.reduce((found, edge) => found | (all[edge] ?? 0), 0);
    return sides === IN_A ? 'removed' : sides === IN_B ? 'added' : 'same';
  }

  /** Per visible edge of the layout in use. */
  #ofEdges(): Uint8Array {
    const { drawing } = this;
    const { layout, tree, open, flows, operations } = drawing;
    if (this.#drawn?.layout === layout) return this.#drawn.sides;
    const shown = representatives(tree, open);
    const pairs = new Map<Item | undefined, Map<Item | undefined, number>>();
    for (const { from, to } of flows) {
      const targets = pairs.get(shown[from]) ?? new Map<Item | undefined, number>();
      pairs.set(shown[from], targets);
      const sides = this.#flows.get(from * operations.length + to) ?? 0;
      targets.set(shown[to], (targets.get(shown[to]) ?? 0) | sides);
    }
    const sides = new Uint8Array(layout.edges.length);
    for (const { id, from, to } of layout.edges) sides[id] = pairs.get(from)?.get(to) ?? 0;
    this.#drawn = { layout, sides };
    return sides;
  }
}

const REMOVED = 1;
const ADDED = 2;

function sidesOf(state: number): number {
  return state === REMOVED ? IN_A : state === ADDED ? IN_B : IN_A | IN_B;
}
