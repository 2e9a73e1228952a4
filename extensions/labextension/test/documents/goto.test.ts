import type { NotebookPanel } from '@jupyterlab/notebook';
import { PageConfig } from '@jupyterlab/coreutils';
import { describe, expect, it } from 'vitest';
import { contentsPath, findCell } from '../../src/documents/goto';

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

describe('contentsPath', () => {
  it('is relative to the folder JupyterLab serves, and null outside it', () => {
    PageConfig.setOption('serverRoot', '/home/me/work');
    expect(contentsPath('/home/me/work/models/net.py')).toBe('models/net.py');
    expect(contentsPath('/home/me/worker/net.py')).toBeNull();
    expect(contentsPath('/etc/passwd')).toBeNull();
    expect(contentsPath('runs/a')).toBe('runs/a');
  });
});
