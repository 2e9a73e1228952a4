/**
 * Where a series is largest within any range, without looking at every value: the answer for each
 * run of 64 positions is kept, then for each run of 64 runs. A pixel column of a million events
 * costs a few dozen steps, and no peak is lost.
 */
const FAN = 64;

export class Pyramid {
  /** Position of the largest value of every run, run length 64, 64², … */
  private readonly levels: Int32Array[] = [];

  constructor(private readonly values: Float64Array) {
    let below = values.length;
    let pick = (index: number): number => index;
    while (below > FAN) {
      const level = new Int32Array(Math.ceil(below / FAN));
      const source = pick;
      for (let run = 0; run < level.length; run += 1) {
        let best = source(run * FAN);
        const end = Math.min(below, (run + 1) * FAN);
        for (let index = run * FAN + 1; index < end; index += 1) {
          const at = source(index);
          if ((values[at] ?? 0) > (values[best] ?? 0)) best = at;
        }
        level[run] = best;
      }
      this.levels.push(level);
      pick = (index) => level[index] ?? 0;
      below = level.length;
    }
  }

  /** The first position in [from, to] with the largest value. */
  argmax(from: number, to: number): number {
    let best = from;
    let at = from;
    while (at <= to) {
      let level = -1;
      let size = 1;
      // The longest run that begins here and ends within.
      while (
        level + 1 < this.levels.length &&
        at % (size * FAN) === 0 &&
        at + size * FAN - 1 <= to
      ) {
        size *= FAN;
        level += 1;
      }
      const candidate = level < 0 ? at : (this.levels[level]?.[at / size] ?? at);
      if ((this.values[candidate] ?? 0) > (this.values[best] ?? 0)) best = candidate;
      at += size;
    }
    return best;
  }
}
