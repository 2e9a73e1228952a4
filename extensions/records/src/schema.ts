/**
 * What is checked when a record is read from a file. Generated from the annotations of its
 * dataclass (`workbench/records/rules.py`) into `generated/fields.ts`.
 *
 * A field is described by words: its type, then the rules that its numbers keep.
 *
 * - types of columns: `U8`, `I32`, `I64`, `F32`, `F64`; of plain fields: `str`, `int`, `float`,
 *   `bool`, or the texts that are allowed, `on|off`
 * - `@strings`: a row of `strings`; `@4`: of four fixed things; then `?` where -1 stands for none,
 *   `+` where one past the last row is allowed too, `<` where only rows before its own are
 * - `>=0`: at least; `>edge_from`: more than in the field beside it, or -1; `sorted`: ascending
 * - `=rows*step`: as many entries as the product
 *
 * A name in a rule is that of a table (`node`: the columns `node_...`), a list, a column or an int.
 */
export type Words = string;

/** The plain fields of a dataclass. A name that ends in `?` may be null; a list holds one kind. */
export interface Shape {
  readonly [name: string]: Words | Shape | ListShape;
}

/** What a list holds, and the rules that the list, or every integer in its items, keeps. */
export type ListShape = readonly [item: Words | Shape, rules?: Words];

export interface RecordFields {
  /** Fields that travel as JSON. */
  readonly plain: Shape;
  /**
   * Fields that travel as arrays. Those of a table are called `<table>_<name>` and are equally
   * long; those of no table are under `''`.
   */
  readonly columns: Readonly<Record<string, Readonly<Record<string, Words>>>>;
}

/** The name and version of a record's type, `workbench.graph/3`; `R` is what it is the name of. */
export type Schema<R> = string & { readonly of?: R };

/** Bytes that are not a record this version can read; the message is one sentence. */
export class RecordError extends Error {
  override readonly name = 'RecordError';
}
