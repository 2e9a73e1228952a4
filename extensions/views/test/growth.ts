const FACTOR = 32;

/**
 * How many times as long `prepare(32 * size)` takes as `prepare(size)`, the best of three each: about
 * 32 where time grows with the size, 1,000 where it grows with its square. `prepare` returns what is
 * timed. Time is the processor's, so that work beside it does not count, and no machine's speed is in
 * the ratio; the floor keeps a clock's grain out.
 */
export function growth(size: number, prepare: (size: number) => () => void): number {
  const best = (many: number): number => {
    const work = prepare(many);
    const took = [0, 1, 2].map(() => {
      const start = process.cpuUsage();
      work();
      const { user, system } = process.cpuUsage(start);
      return (user + system) / 1000;
    });
    return Math.min(...took);
  };
  best(size);
  const small = Math.max(1, best(size));
  return best(FACTOR * size) / small;
}

/** Far above what linear work takes with caches that are too small for it, far below a square. */
export const NEAR_LINEAR = 300;
