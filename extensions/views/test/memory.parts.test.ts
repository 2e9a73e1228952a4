import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Model } from '../src/memory/model';
import { partsOf as partsOfBlock, type Split } from '../src/memory/moment';
import { readRules } from '../src/memory/rules';
import { segmentRows } from '../src/memory/segment-table';
import type { MemoryColumns } from '../src/memory/series';
import { CUDA, recordOf } from './memory-data';

const PARTS = {
  requested: 'requested', rounding: 'rounding', slack: 'slack', waiting: 'waiting', pinned: 'pinned',
  other_stream: 'otherStream', other_pool: 'otherPool', releasable: 'releasable',
} as const; // prettier-ignore

interface Case {
  runs: {
    settings: string;
    events: number;
    columns: Partial<MemoryColumns>;
    parts: Record<keyof typeof PARTS, number[]>;
  }[];
  read: { words: string; divisions: number[]; large_page: number }[];
}

/** Written by `python -m tests.unit.memory.parts_case`. */
const CASE = JSON.parse(
  readFileSync(join(import.meta.dirname, 'fixtures/memory-parts.json'), 'utf8'),
) as Case;

const MIB = 2 ** 20;

/** The parts at every position, as Python lists them. */
function partsOf(record: MemoryColumns): Record<string, number[]> {
  const model = new Model(record);
  const splits = Array.from({ length: model.series.length }, (_, at) => model.moment(at).split);
  const listed = (name: keyof Split): number[] => splits.map((split) => Number(split[name]));
  return Object.fromEntries(Object.entries(PARTS).map(([name, own]) => [name, listed(own)]));
}

describe.each(CASE.runs)('under "$settings"', ({ settings, events, columns, parts }) => {
  const none = columns.block_start?.length ?? 0;
  const blank = recordOf(
    Array.from({ length: none }, () => [0, 0, 0, 0, 0, 0, 0] as const),
    events,
    -1,
  );
  const record: MemoryColumns = { ...blank, ...columns };

  it('reserved memory went where Python says, at every event', () => {
    expect(partsOf({ ...record, is_predicted: true, settings })).toEqual(parts);
  });

  it('it did so, too, where it was recorded, and where only the certificate says so', () => {
    expect(partsOf({ ...record, settings })).toEqual(parts);
    const certificate = { settings } as MemoryColumns['certificate'];
    expect(partsOf({ ...record, certificate })).toEqual(parts);
  });

  it('the table has as much to give back', () => {
    const model = new Model({ ...record, settings });
    for (let at = 0; at < model.series.length; at += 7) {
      const rows = segmentRows(model.record, model.moment(at));
      const sum = rows.reduce((all, { releasable }) => all + releasable, 0);
      expect(sum).toBe(parts.releasable[at]);
    }
  });
});

describe('the rules of an allocator', () => {
  it.each(CASE.read)('are read as in Python: $words', ({ words, divisions, large_page }) => {
    expect(readRules(words)).toEqual({ divisions, largePage: large_page });
  });

  it('are the defaults where the settings cannot be read', () => {
    const settings = 'large_segment_size_mb:many,roundup_power2_divisions:[,other';
    expect(partsOf({ ...CUDA, settings })).toEqual(partsOf(CUDA));
  });

  it('distinguish the rounding of a block from its slack', () => {
    const block_requested = [8 * MIB, 2.5 * MIB, 1024];
    const taken = (settings: string): unknown => {
      const { record, rules } = new Model({ ...CUDA, block_requested, settings });
      return partsOfBlock(record, 1, rules);
    };
    const requested = 2.5 * MIB;
    expect(taken('')).toEqual({ requested, rounding: 0, slack: 1.5 * MIB });
    const halves = 'roundup_power2_divisions:2';
    expect(taken(halves)).toEqual({ requested, rounding: 0.5 * MIB, slack: MIB });
  });
});
