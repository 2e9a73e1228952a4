/**
 * In which element type an operation computes, read off the types of the values that its backward
 * nodes take and give. Casts and views compute nothing. What a Python function or compiled code does
 * inside is not in the graph, and is unknown.
 *
 * The twin of `workbench/graph/questions/compute_dtype.py`; `test/fixtures/graph-dtypes.json` holds the two together.
 */
import { VIEW } from './checkpoint';
import type { GraphColumns } from './columns';
import { COPY } from './fold';

/** A node of a Python function: torch numbers its own (`AddmmBackward0`). */
const PYTHON = /Backward$/;
/** torchao's products: they multiply in 8 bits; values around them stay as they are. */
const EIGHT_BITS = /^m(x_mm|atmul_with_hp_or_float8_args)B/;
export const UNKNOWN = 'unknown';

/**
 * `bfloat16`, `bfloat16 + float32` for several, `float32 → bfloat16` for a cast and nothing else,
 * `unknown`.
 *
 * @param makers of every row: the rows whose values it takes.
 */
export function computedIn(
  { strings, node_dtype, node_type }: GraphColumns,
  rows: readonly number[],
  makers: readonly (readonly number[] | undefined)[],
): string {
  const types = new Set<string>();
  const typeOf = (row: number): string => strings[node_dtype[row]] || UNKNOWN;
  const given = typeOf(rows.at(-1) ?? -1);
  let cast = '';
  for (const row of rows) {
    const name = strings[node_type[row]] ?? '';
    const taken = (makers[row] ?? []).map(typeOf);
    if (EIGHT_BITS.test(name)) types.add(name[1] === 'x' ? 'mxfp8' : 'float8');
    else if (!VIEW.test(name) && !COPY.test(name))
      for (const one of [...taken, PYTHON.test(name) ? UNKNOWN : typeOf(row)]) types.add(one);
    else cast ||= taken.find((one) => one !== given && one !== UNKNOWN) ?? '';
  }
  if (types.size === 0) return cast ? `${cast} → ${given}` : given;
  return types.has(UNKNOWN) ? UNKNOWN : [...types].sort().join(' + ');
}
