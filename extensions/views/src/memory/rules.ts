/**
 * By what sizes are rounded and memory goes back, as far as parts of what is reserved depend on it;
 * as `workbench/allocator/simulator/settings.py` and `rounding.py` have it.
 */
import type { MemoryColumns } from './series';
import { settingParts, settingsOf } from './settings';

export interface Rules {
  /** Steps of each power of two from 1 MiB to 32 GiB; 0: sizes are rounded to 512 bytes alone. */
  divisions: readonly number[];
  /** Bytes of a page of an expandable segment in the large pool. */
  largePage: number;
}

const ROUND = 512;
const MIB = 2 ** 20;
const NUM_DIVISIONS = 16;
const LARGE_PAGE_MIB = 20;

/** The rules under which a record was made. */
export function rulesOf(record: MemoryColumns): Rules {
  return readRules(settingsOf(record));
}

/** The rules in settings; the defaults where they do not say. */
export function readRules(settings: string): Rules {
  const said = new Map(settingParts(settings.replace(/\s/g, '')));
  return {
    divisions: readDivisions(said.get('roundup_power2_divisions') ?? '0'),
    largePage: (Number(said.get('large_segment_size_mb')) || LARGE_PAGE_MIB) * MIB,
  };
}

/** `8`, or `[256:1,512:2,>:8]`: what is below the first size has its number. */
function readDivisions(value: string): number[] {
  const found = new Array<number>(NUM_DIVISIONS).fill(0);
  if (!value.startsWith('[')) return found.fill(Number(value) || 0);
  let last = -1;
  for (const part of value.slice(1, -1).split(',')) {
    const [size = '', number] = part.split(':');
    if (size === '>') found.fill(Number(number), Math.max(last, 0) + 1);
    else {
      const at = Math.min(Math.floor(Math.log2(Number(size))), NUM_DIVISIONS - 1);
      found.fill(Number(number), last < 0 ? 0 : at, at + 1);
      last = at;
    }
  }
  return found;
}

/** Bytes of a block for a request, before what is too little to be split off. */
export function roundSize(requested: number, { divisions }: Rules): number {
  let floor = MIB;
  let interval = 0;
  for (; 2 * floor <= requested; floor *= 2) interval += 1;
  while (floor > requested && floor > ROUND) floor /= 2;
  const number = divisions[Math.min(interval, NUM_DIVISIONS - 1)] ?? 0;
  const step = number > 1 && requested > ROUND * number ? floor / number : ROUND;
  return Math.max(ROUND, Math.ceil(requested / step) * step);
}
