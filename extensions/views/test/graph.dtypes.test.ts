/** In which type operations compute: read off the graph, as a colour, in words and in the table. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { GraphColumns } from '../src/graph/columns';
import { computedIn } from '../src/graph/dtypes';
import { graphOf } from './graph-data';
import { buttonNamed, find, press, query, sectionText, shown } from './graph-mounted';

interface Case {
  title: string;
  nodes: { type: string; dtype: string; inputs: number[] }[];
  rows: number[];
  computed: string;
}

const CASES = JSON.parse(
  readFileSync(join(import.meta.dirname, 'fixtures', 'graph-dtypes.json'), 'utf8'),
) as Case[];

/** `record` with the type names and element types of `nodes`. */
function typed(record: GraphColumns, nodes: readonly { type?: string; dtype: string }[]) {
  const strings = [...record.strings];
  const text = (value: string): number => strings.push(value) - 1;
  return {
    ...record,
    node_type: nodes.map(({ type }, row) => (type ? text(type) : (record.node_type[row] ?? 0))),
    node_dtype: nodes.map(({ dtype }) => text(dtype)),
    strings,
  };
}

describe('what an operation computes in', () => {
  it.each(CASES)('is known of $title', ({ nodes, rows, computed }) => {
    const graph = graphOf(nodes.map(({ inputs }, row) => ({ op: `op${row}`, inputs })));
    const record = typed(graph, nodes);
    const makers = nodes.map(({ inputs }) => inputs);
    expect(computedIn(record, rows, makers)).toBe(computed || 'unknown');
  });
});

describe('the colouring', () => {
  const nodes = [
    { op: 'linear', type: 'AddmmBackward0', dtype: 'bfloat16' },
    { op: 'norm', type: 'NativeLayerNormBackward0', dtype: 'float32', inputs: [0] },
    { op: 'mine', type: 'MineBackward', dtype: 'float32', inputs: [1] },
  ];
  const record = typed(graphOf(nodes), nodes);

  it('has a legend with every type, and what is unknown hatched', () => {
    const host = shown({ record, error: null });
    buttonNamed(host, 'Dtype').click();
    const legend = query(host, '.wv-legend');
    const keys = [...legend.querySelectorAll('.key')].slice(0, 3);
    expect(keys.map(({ textContent }) => textContent)).toEqual([
      'bfloat16',
      'bfloat16 + float32',
      'unknown',
    ]);
    expect(keys[2]?.querySelector('.swatch.hatched')).not.toBeNull();
    expect(legend.textContent).not.toContain('full bar');
  });

  it('is in the table and on the page of an operation', () => {
    const host = shown({ record, error: null });
    find(host, 'norm');
    expect(sectionText(host, 'Tensors')).toContain('Computed inbfloat16 + float32');
    press(host, 't');
    const headings = [...host.querySelectorAll('th')].map(({ textContent }) => textContent ?? '');
    const at = headings.findIndex((text) => text.startsWith('Computed in'));
    const cells = [...host.querySelectorAll('[role=treegrid] tbody tr')].map(
      (row) => row.querySelectorAll('td')[at]?.textContent,
    );
    expect(cells).toContain('unknown');
    expect(cells).toContain('bfloat16');
  });
});
