// @vitest-environment node
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  CATEGORIES,
  DIFF_STATES,
  GRAPH_DIFF,
  GRAPH_RECORD,
  MEMORY_CHART,
  MEMORY_RECORD,
  NODE_KINDS,
  readOneOf,
  readRecord,
  readRecordAs,
  RecordError,
} from '../src';

/** Written by Python (`tests/unit/records/support.py`), checked there to be current. */
function fixture(name: string): Uint8Array {
  return new Uint8Array(readFileSync(join(import.meta.dirname, 'fixtures', `${name}.safetensors`)));
}

describe('records written by Python', () => {
  it('reads a graph: columns, the string table, hostile text, a NaN as null', () => {
    const graph = readRecordAs(GRAPH_RECORD, fixture('graph'));
    expect(graph.schema).toBe('workbench.graph/2');
    expect(graph.node_type).toBeInstanceOf(Int32Array);
    expect(graph.strings[graph.node_shape[0] as number]).toBe('128×10');
    expect(graph.strings.at(-1)).toBe('Größe\n<b>');
    expect(NODE_KINDS[graph.node_kind[0] as number]).toBe('parameter');
    expect(graph.modules[1]).toEqual({
      path: 'head',
      cls: 'Linear',
      parent: 0,
      forward_s: null,
    });
    expect(graph.sources[0]?.cell).toBe(2);
    expect(graph.loss).toBeNull();
    expect(graph.experiment).toBe('exp-1');
  });

  it('keeps 64-bit integers exact, negative ones and those above 2^32', () => {
    const graph = readRecordAs(GRAPH_RECORD, fixture('graph'));
    expect([...graph.node_sequence]).toEqual([-1, 2 ** 40, 2 ** 40 + 1]);
    const memory = readRecordAs(MEMORY_RECORD, fixture('memory'));
    expect([...memory.block_address]).toEqual([0x7f1234567000, 0x7f1234567200, -1]);
    expect([...memory.event_time_us]).toEqual([5, 17, 2 ** 41]);
  });

  it('reads a chart in the order of the categories', () => {
    const chart = readRecordAs(MEMORY_CHART, fixture('memory_chart'));
    expect(chart.bytes).toEqual(Float32Array.from({ length: 2 * CATEGORIES.length }, (_, i) => i));
    expect(chart.at_peak).toHaveLength(CATEGORIES.length);
  });

  it('reads a diff: the columns of a graph, and those of the other capture beside them', () => {
    const diff = readRecordAs(GRAPH_DIFF, fixture('graph_diff'));
    expect([...diff.node_state].map((state) => DIFF_STATES[state])).toEqual([
      'same',
      'changed',
      'removed',
    ]);
    expect(diff.node_type).toBeInstanceOf(Int32Array);
    expect([...diff.node_b]).toEqual([0, 1, -1]);
    expect([...diff.node_saved_bytes_b]).toEqual([0, 2 ** 33, -1]);
    expect(diff.b.gradient_norm).toBe(0.25);
    expect(diff.a.gradient_norm).toBeNull();
  });

  it('reads a part of a larger buffer, wherever it begins', () => {
    const bytes = fixture('memory');
    const padded = new Uint8Array(bytes.length + 10);
    padded.set(bytes, 3);
    const view = new DataView(padded.buffer, 3, bytes.length);
    expect(readRecord(view)).toEqual(readRecord(bytes));
  });
});

describe('bytes that are no record', () => {
  it('takes one of several types where several will do', () => {
    const graphs = [GRAPH_RECORD, GRAPH_DIFF];
    expect(readOneOf(graphs, fixture('graph_diff')).schema).toBe('workbench.graph_diff/1');
    expect(() => readOneOf(graphs, fixture('memory'))).toThrow(
      'expected a workbench.graph/2 or workbench.graph_diff/1 record, got workbench.memory/1',
    );
  });

  it('says what it was given', () => {
    const graph = fixture('graph');
    expect(() => readRecordAs(MEMORY_RECORD, graph)).toThrow(
      'expected a workbench.memory/1 record, got workbench.graph/2',
    );
    expect(() => readRecord(new Uint8Array(3))).toThrow('only 3 bytes');
    expect(() => readRecord(new Uint8Array(64).fill(255))).toThrow('longer than the file');
    expect(() => readRecord(graph.subarray(0, graph.length - 1))).toThrow('cut short');
  });

  it('refuses a schema it does not know, and names those it does', () => {
    const text = new TextDecoder('latin1').decode(fixture('memory_chart'));
    const newer = Uint8Array.from(text.replace('_chart/1', '_chart/7'), (c) => c.charCodeAt(0));
    expect(() => readRecord(newer)).toThrow(
      /^expected a .*workbench.graph\/2 or .* got workbench.memory_chart\/7$/,
    );
  });

  it('never fails in another way, whichever byte is wrong', () => {
    const chart = fixture('memory_chart');
    for (let i = 0; i < chart.length; i += 1) {
      const damaged = chart.slice();
      damaged[i] = (chart[i] as number) ^ 0x11;
      try {
        readRecord(damaged);
      } catch (error) {
        expect(error).toBeInstanceOf(RecordError);
      }
    }
  });
});
