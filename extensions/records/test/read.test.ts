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
    expect(graph.schema).toBe('workbench.graph/3');
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
    expect([...memory.block_address]).toEqual([0x7f1234567000, 0x7f1234567400, -1]);
    expect([...memory.event_time_us]).toEqual([5, 17, 2 ** 41, 2 ** 41]);
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
  it('says what it was given', () => {
    const graph = fixture('graph');
    expect(() => readRecordAs(MEMORY_RECORD, graph)).toThrow(
      'expected a workbench.memory/3 record, got workbench.graph/3',
    );
    for (const read of [readRecord, (bytes: Uint8Array) => readRecordAs(GRAPH_RECORD, bytes)]) {
      expect(() => read(new Uint8Array(3))).toThrow('it has 3 bytes, which cannot hold its header');
      expect(() => read(new Uint8Array(64).fill(255))).toThrow('cannot hold its header');
      expect(() => read(graph.subarray(0, graph.length - 1))).toThrow('cut short');
    }
  });

  it('refuses a schema it does not know, and names those it does', () => {
    const newer = edited('memory_chart', (text) => text.replace('_chart/1', '_chart/7'));
    expect(() => readRecord(newer)).toThrow(/memory_chart\/7; this version reads: .*graph\/3/);
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

describe('records that contradict themselves', () => {
  it('names the row, what it is and what is valid', () => {
    const off = edited('graph', (text) => text.replace('\\"root\\": 2', '\\"root\\": 3'));
    expect(() => readRecord(off)).toThrow(
      'damaged workbench.graph/3 record: root is 3, expected 0 to 2 (rows of node)',
    );
  });

  it('refuses a plain field of another type, or none, by its place', () => {
    const text = edited('graph', (t) => t.replace('\\"parent\\": -1', '\\"parent\\": {}'));
    expect(() => readRecord(text)).toThrow('modules[0].parent is {}, expected a whole number');
    const gone = edited('graph', (t) => t.replace('\\"cls\\"', '\\"CLS\\"'));
    expect(() => readRecord(gone)).toThrow('modules[0].cls is missing');
  });

  it('refuses modules in a circle', () => {
    const circle = edited('graph', (t) => t.replace('\\"parent\\": -1', '\\"parent\\": 1 '));
    expect(() => readRecord(circle)).toThrow(
      'modules[0].parent is 1, expected a row before its own',
    );
  });
});

/** The bytes of a record with its header changed; the length must stay. */
function edited(name: string, edit: (text: string) => string): Uint8Array {
  const text = new TextDecoder('latin1').decode(fixture(name));
  const changed = edit(text);
  expect(changed).not.toBe(text);
  expect(changed).toHaveLength(text.length);
  return Uint8Array.from(changed, (letter) => letter.charCodeAt(0));
}
