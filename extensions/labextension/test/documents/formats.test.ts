import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';
import { ending, FORMATS, formatLabel, formatOf, pythonLine } from '../../src/documents/formats';

const trans = nullTranslator.load('torch-workbench');

describe('formats of an export', () => {
  it('are each called by a name of their own', () => {
    for (const kind of ['graph', 'diff', 'memory'] as const) {
      const own = FORMATS.filter(({ kinds }) => kinds.includes(kind));
      const labels = own.map((one) => formatLabel(one, kind, trans));
      const endings = own.map((one) => ending(one, kind));
      expect(new Set(labels).size).toBe(own.length);
      expect(new Set(endings).size).toBe(own.length);
    }
  });

  it('distinguish the picture of what is shown from that of the whole graph', () => {
    expect(ending(formatOf('view-svg'), 'graph')).toBe('view.svg');
    expect(ending(formatOf('svg'), 'diff')).toBe('diff.svg');
    expect(ending(formatOf('record'), 'memory')).toBe('memory.safetensors');
  });

  it('name the valid ones where there is none of that name', () => {
    expect(() => formatOf('docx')).toThrow(/docx; valid: view-svg, .*record/);
  });

  it('have a line of Python, whatever the file is called', () => {
    expect(pythonLine('a "b".graph.safetensors', 'graph', formatOf('pdf'))).toBe(
      String.raw`wb.graph("a \"b\".graph.safetensors").save("a \"b\".graph.pdf")`,
    );
    expect(pythonLine('x.memory.safetensors', 'memory', formatOf('png'))).toBe(
      'wb.memory("x.memory.safetensors").figure().savefig("x.memory.png")',
    );
  });
});
