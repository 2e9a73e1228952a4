/** Lists that keep their rows: what is focused or open in one outlives a message of the kernel. */

interface Row<T> {
  readonly el: HTMLElement;
  /** Takes its value as it is now; `all` are those of the list. */
  update(value: T, all: readonly T[]): void;
}

export class Rows<T> {
  private readonly rows = new Map<string, Row<T>>();

  constructor(
    private readonly list: HTMLElement,
    private readonly keyOf: (value: T) => string,
    private readonly make: (value: T) => Row<T>,
  ) {}

  /** One row for each value, in their order; a key that is gone takes its row with it. */
  show(values: readonly T[]): void {
    const { list, rows } = this;
    const keys = new Set(values.map(this.keyOf));
    for (const [key, row] of rows) {
      if (keys.has(key)) continue;
      row.el.remove();
      rows.delete(key);
    }
    for (const [at, value] of values.entries()) {
      const row = rows.get(this.keyOf(value)) ?? this.make(value);
      rows.set(this.keyOf(value), row);
      row.update(value, values);
      if (list.children[at] !== row.el) list.insertBefore(row.el, list.children[at] ?? null);
    }
  }
}
