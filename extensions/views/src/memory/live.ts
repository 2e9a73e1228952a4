/**
 * The blocks that live at a position. Moving a little costs what happened in between; moving far
 * begins at the nearest of some hundred positions whose blocks are kept.
 */
import { isLive, type MemoryColumns } from './series';

const CHECKPOINTS = 128;
const SHORTEST = 2048;

export class LiveBlocks {
  /** Live blocks in no order; only the first `count` count. */
  readonly rows: Int32Array;
  count = 0;
  private position = 0;
  /** Place of each block in `rows`, -1 for one that does not live. */
  private readonly place: Int32Array;
  private readonly born: Int32Array;
  private readonly died: Int32Array;
  private readonly stride: number;
  private readonly kept: Int32Array[] = [];

  constructor(private readonly record: MemoryColumns) {
    const blocks = record.block_start.length;
    const events = record.event_time_us.length;
    this.rows = new Int32Array(blocks);
    this.place = new Int32Array(blocks).fill(-1);
    this.born = new Int32Array(events).fill(-1);
    this.died = new Int32Array(events).fill(-1);
    for (let block = 0; block < blocks; block += 1) {
      const start = record.block_start[block] ?? -1;
      const end = record.block_end[block] ?? -1;
      if (start >= 0) this.born[start] = block;
      else this.enter(block);
      if (end >= 0) this.died[end] = block;
    }
    this.stride = Math.max(SHORTEST, Math.ceil(events / CHECKPOINTS));
    this.keepAll(events);
  }

  /** Moves to a position. */
  moveTo(position: number): void {
    const base = Math.floor(position / this.stride);
    const near = Math.abs(position - this.position);
    if (near > position - base * this.stride) this.restore(base);
    while (this.position < position) this.forth();
    while (this.position > position) this.back();
  }

  has(block: number): boolean {
    return (this.place[block] ?? -1) >= 0;
  }

  private keepAll(events: number): void {
    this.kept.push(this.rows.slice(0, this.count));
    while (this.position < events) {
      this.forth();
      if (this.position % this.stride === 0) this.kept.push(this.rows.slice(0, this.count));
    }
  }

  private restore(base: number): void {
    for (let index = 0; index < this.count; index += 1) this.place[this.rows[index] ?? 0] = -1;
    this.count = 0;
    this.position = base * this.stride;
    for (const block of this.kept[base] ?? []) this.enter(block);
  }

  private forth(): void {
    const dead = this.died[this.position] ?? -1;
    const fresh = this.born[this.position] ?? -1;
    if (dead >= 0) this.leave(dead);
    if (fresh >= 0) this.enter(fresh);
    this.position += 1;
  }

  private back(): void {
    this.position -= 1;
    const dead = this.died[this.position] ?? -1;
    const fresh = this.born[this.position] ?? -1;
    if (fresh >= 0) this.leave(fresh);
    // A block freed by its own allocation's event never lived.
    if (dead >= 0 && isLive(this.record, dead, this.position)) this.enter(dead);
  }

  private enter(block: number): void {
    if (this.has(block)) return;
    this.place[block] = this.count;
    this.rows[this.count] = block;
    this.count += 1;
  }

  private leave(block: number): void {
    const at = this.place[block] ?? -1;
    if (at < 0) return;
    this.count -= 1;
    const last = this.rows[this.count] ?? 0;
    this.rows[at] = last;
    this.place[last] = at;
    this.place[block] = -1;
  }
}
