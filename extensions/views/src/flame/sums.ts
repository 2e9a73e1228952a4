/** What every node of the tree holds: bytes by category, its own and all below it. */
import type { FlameTree } from './tree';
import type { Model } from '../memory/model';
import { CATEGORIES, type MemoryColumns } from '../memory/series';

type Fits = (block: number) => boolean;
/** Blocks that live at a position, or those that events [from, to) allocated. */
export type When = { live: number } | { from: number; to: number };

export class FlameSums {
  /** Bytes of a node and all below it. */
  readonly total: Float64Array;
  /** Bytes of the blocks that belong to the node itself. */
  readonly own: Float64Array;
  /** Blocks of a node and all below it. */
  readonly blocks: Int32Array;
  /** Of each category that occurs, bytes of a node and all below it. */
  readonly parts: (Float64Array | null)[];

  constructor(private readonly tree: FlameTree) {
    this.total = new Float64Array(tree.size);
    this.own = new Float64Array(tree.size);
    this.blocks = new Int32Array(tree.size);
    this.parts = CATEGORIES.map(() => null);
  }

  /** Adds up the blocks that fit: what lives, or what was allocated in a range of events. */
  read({ record, live }: Model, fits: Fits, when: When): void {
    this.total.fill(0);
    this.blocks.fill(0);
    for (const part of this.parts) part?.fill(0);
    if ('live' in when) {
      live.moveTo(when.live);
      for (let at = 0; at < live.count; at += 1) {
        const block = live.rows[at] ?? 0;
        if (fits(block)) this.add(record, block);
      }
    } else {
      for (let block = 0; block < record.block_start.length; block += 1) {
        const start = record.block_start[block] ?? -1;
        if (start >= when.from && start < when.to && fits(block)) this.add(record, block);
      }
    }
    this.own.set(this.total);
    for (const part of this.parts) if (part) this.upwards(part);
    this.upwards(this.total);
    this.upwards(this.blocks);
  }

  private add(record: MemoryColumns, block: number): void {
    const node = this.tree.nodeOf(block);
    const bytes = record.block_bytes[block] ?? 0;
    const category = record.block_category[block] ?? 6;
    const part = (this.parts[category] ??= new Float64Array(this.tree.size));
    part[node] = (part[node] ?? 0) + bytes;
    this.total[node] = (this.total[node] ?? 0) + bytes;
    this.blocks[node] = (this.blocks[node] ?? 0) + 1;
  }

  private upwards(values: Float64Array | Int32Array): void {
    const { parent } = this.tree;
    for (let node = values.length - 1; node > 0; node -= 1) {
      const value = values[node] ?? 0;
      if (value === 0) continue;
      const up = parent[node] ?? 0;
      values[up] = (values[up] ?? 0) + value;
    }
  }
}
