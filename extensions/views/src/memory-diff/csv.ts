/** All numbers of a diff as a table in a file, the columns of `MemoryDiff.save("diff.csv")`. */
import { BY } from './naming';
import type { Pair } from './pair';

const COLUMNS = ['by', 'what', 'a_bytes', 'b_bytes', 'change_bytes', 'a_blocks', 'b_blocks'];

export function csvOf(pair: Pair): string {
  const lines = [COLUMNS.join()];
  for (const by of BY)
    for (const row of pair.changes(by)) {
      const { what, before, after, change, blocksBefore, blocksAfter } = row;
      const cells = [by, csvCell(what), before, after, change, blocksBefore, blocksAfter];
      lines.push(cells.map((cell) => quoted(String(cell))).join());
    }
  return `${lines.join('\r\n')}\r\n`;
}

/**
 * Invisible control characters are replaced, and a spreadsheet finds no formula: as
 * `workbench.trust.csv_cell`, for a record that is opened here may be anybody's.
 */
function csvCell(text: string): string {
  const plain = text.replace(HARMFUL, '\ufffd');
  const isNumber = plain.trim() !== '' && Number.isFinite(Number(plain));
  return isNumber ? plain : plain.replace(FORMULA, "$1'");
}

const HARMFUL =
  /[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\u206a-\u206f\ufeff\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff\u{e0000}-\u{e007f}]/gu;
/** Spreadsheets take full-width signs too, and part cells by `;` where the comma is a number's. */
const FORMULA = /(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/g;

/** As Python's `csv` writes a cell. */
function quoted(cell: string): string {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
