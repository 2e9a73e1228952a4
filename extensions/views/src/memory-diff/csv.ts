/** All numbers of a diff as a table in a file, the columns of `MemoryDiff.save("diff.csv")`. */
import { BY } from './naming';
import type { Pair } from './pair';

const COLUMNS = ['by', 'what', 'a_bytes', 'b_bytes', 'change_bytes', 'a_blocks', 'b_blocks'];

export function csvOf(pair: Pair): string {
  const lines = [COLUMNS.join()];
  for (const by of BY)
    for (const row of pair.changes(by)) {
      const { what, before, after, change, blocksBefore, blocksAfter } = row;
      const cells = [by, what, before, after, change, blocksBefore, blocksAfter];
      lines.push(cells.map((cell) => quoted(String(cell))).join());
    }
  return `${lines.join('\r\n')}\r\n`;
}

/** As Python's `csv` writes a cell. */
function quoted(cell: string): string {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
