/** A memory record from blocks, and a small step. */
import { readSeries, type MemoryColumns } from '../src/memory/series';

export const STRINGS = ['', 'aten.relu', 'aten.conv_backward', 'fc.weight', 'body.0', 'head'];
export const [PARAMETERS, GRADIENTS, ACTIVATIONS] = [0, 3, 4];

/** [start, end, bytes, category, op, name, module] */
export type Block = readonly [number, number, number, number, number, number, number];

export function recordOf(blocks: readonly Block[], events: number, peak: number): MemoryColumns {
  const column = (at: number): number[] => blocks.map((block) => block[at] ?? 0);
  const record = {
    title: 'test',
    step: 3,
    device: 'cpu',
    basis: 'Measured.',
    torch_version: '2.13.0',
    notes: [],
    strings: STRINGS,
    sources: [],
    phases: [
      { name: 'forward', start: 0, end: 2 },
      { name: 'backward', start: 2, end: events },
    ],
    event_time_us: Array.from({ length: events }, (_, event) => event * 1000),
    block_start: column(0),
    block_end: column(1),
    block_bytes: column(2),
    block_category: column(3),
    block_op: column(4),
    block_name: column(5),
    block_module: column(6),
    block_source: blocks.map(() => -1),
    block_address: blocks.map(() => -1),
    peak_event: peak,
    peak_bytes: 0,
    reserved_bytes: -1,
    segment_address: [],
    segment_bytes: [],
    segment_stream: [],
    segment_pool: [],
    segment_block_segment: [],
    segment_block_offset: [],
    segment_block_bytes: [],
    segment_block_state: [],
    segment_block_category: [],
  };
  return { ...record, peak_bytes: readSeries(record).most };
}

export const KIB = 1024;
export const STEP = recordOf(
  [
    [-1, -1, 20 * KIB, PARAMETERS, 0, 3, 5],
    [0, 3, 60 * KIB, ACTIVATIONS, 1, 0, 4],
    [2, -1, 20 * KIB, GRADIENTS, 2, 0, 4],
  ],
  4,
  2,
);
