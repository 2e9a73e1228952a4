/** A binary heap of indices, smallest key first, ties by index. */
export class Heap {
  readonly #items: number[] = [];

  constructor(private readonly keys: readonly number[]) {}

  #less(a: number, b: number): boolean {
    const [ka, kb] = [this.keys[a], this.keys[b]];
    return ka < kb || (ka === kb && a < b);
  }

  push(item: number): void {
    let at = this.#items.push(item) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!this.#less(item, this.#items[up])) break;
      this.#items[at] = this.#items[up];
      at = up;
    }
    this.#items[at] = item;
  }

  /** The item with the smallest key, -1 when there is none. */
  pop(): number {
    const top = this.#items[0];
    const last = this.#items.pop();
    if (top === undefined || last === undefined) return -1;
    if (this.#items.length === 0) return top;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= this.#items.length) break;
      const right = down + 1;
      if (right < this.#items.length && this.#less(this.#items[right], this.#items[down]))
        down = right;
      if (!this.#less(this.#items[down], last)) break;
      this.#items[at] = this.#items[down];
      at = down;
    }
    this.#items[at] = last;
    return top;
  }
}
