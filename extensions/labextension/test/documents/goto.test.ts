import type { NotebookPanel } from '@jupyterlab/notebook';
import { describe, expect, it } from 'vitest';
import { findCell } from '../../src/documents/goto';

function notebook(...cells: [number | null, string][]): NotebookPanel {
  const list = cells.map(([executionCount, source]) => ({
    type: 'code',
    executionCount,
    sharedModel: { source },
  }));
  return { content: { model: { cells: list } } } as unknown as NotebookPanel;
}

const line = { filename: '<cell>', line: 2, cell: 3, text: 'h = self.stem(x)' };

describe('findCell', () => {
  it('finds the cell with the execution count', () => {
    const panel = notebook([1, 'import torch'], [3, 'def forward(self, x):\n    h = self.stem(x)']);
    expect(findCell(panel, line)).toBe(1);
  });

  it('finds a cell that was run again since by its text', () => {
    const panel = notebook([3, 'print(1)'], [7, 'def forward(self, x):\n    h = self.stem(x)']);
    expect(findCell(panel, line)).toBe(1);
  });

  it('does not guess between two cells with the same text', () => {
    const text = '    h = self.stem(x)';
    expect(findCell(notebook([5, text], [6, text]), line)).toBe(-1);
  });
});
