/** A memory record from blocks, and a small step. */
import type { MemoryViewOptions } from '../src/memory';
import { readSeries, type MemoryColumns } from '../src/memory/series';

/** What a host hands over that carries every part of the view. */
export const OPTIONS: MemoryViewOptions = {
  whatIf: () => import('../src/what-if'),
  flame: () => import('../src/flame'),
};

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
    event_kind: Array.from({ length: events }, (_, event) =>
      blocks.some(([start]) => start === event) ? 0 : 2,
    ),
    block_start: column(0),
    block_end: column(1),
    block_pending: blocks.map(() => -1),
    block_bytes: column(2),
    block_requested: column(2),
    block_category: column(3),
    block_op: column(4),
    block_name: column(5),
    block_module: column(6),
    block_source: blocks.map(() => -1),
    block_address: blocks.map(() => -1),
    block_stream: blocks.map(() => 0),
    peak_event: peak,
    peak_bytes: 0,
    reserved_bytes: -1,
    segment_start: [],
    segment_end: [],
    segment_address: [],
    segment_bytes: [],
    segment_stream: [],
    segment_pool: [],
    segment_expandable: [],
    segment_private: [],
    oom_event: [],
    oom_bytes: [],
    oom_free: [],
    oom_largest: [],
    obstacle_oom: [],
    obstacle_block: [],
    remedies: [],
    certificate: null,
    experiment: null,
    captured_at: 0,
    batch_size: -1,
    is_predicted: false,
    card: '',
    card_bytes: -1,
    settings: '',
    peak_interval: [-1, -1],
    reasons: [],
    block_call: blocks.map(() => -1),
    block_growth: blocks.map(() => 2),
    block_segment: blocks.map(() => -1),
    call_parent: [],
    call_source: [],
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

const MIB = 2 ** 20;
export const BASE = 0x7f0000000000;

/**
 * A CUDA allocator: a large segment of 20 MiB with a parameter, a hole and an activation that is
 * pending from event 2 to 4, and one of 2 MiB in the small pool that is released at event 5.
 */
export const CUDA: MemoryColumns = (() => {
  const record = recordOf(
    [
      [-1, -1, 8 * MIB, PARAMETERS, 0, 3, 5],
      [0, 4, 4 * MIB, ACTIVATIONS, 1, 0, 4],
      [1, 3, 1024, GRADIENTS, 2, 0, 4],
    ],
    6,
    1,
  );
  return {
    ...record,
    device: 'cuda:0',
    event_kind: [0, 0, 1, 2, 2, 4],
    block_pending: [-1, 2, -1],
    block_requested: [8 * MIB - 100, 3 * MIB, 1000],
    block_address: [BASE, BASE + 12 * MIB, BASE + 64 * MIB],
    reserved_bytes: 22 * MIB,
    segment_start: [-1, -1],
    segment_end: [-1, 5],
    segment_address: [BASE, BASE + 64 * MIB],
    segment_bytes: [20 * MIB, 2 * MIB],
    segment_stream: [0, 0],
    segment_pool: [1, 0],
    segment_expandable: [0, 0],
    segment_private: [0, 0],
    oom_event: [1],
    oom_bytes: [64 * MIB],
    oom_free: [MIB],
    oom_largest: [4 * MIB],
    block_segment: [0, 0, 1],
  };
})();
