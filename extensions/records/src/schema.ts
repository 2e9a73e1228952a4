/** What the reader of record bytes is told about one packed record; `generated/` holds one each. */
export interface RecordType<R extends { readonly schema: string } = { readonly schema: string }> {
  readonly schema: R['schema'];
  /** Fields that travel as JSON. */
  readonly plain: readonly string[];
  /** Fields that travel as arrays, and their element type. */
  readonly columns: Readonly<Record<string, string>>;
}
