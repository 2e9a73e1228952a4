/** Requests that were refused, because the device had no more: out of memory. */
import { formatBytes, shorten } from '../graph/format';
import { KIND, phaseAt, type MemoryColumns } from './series';

/** The refused request that a position comes just after; null at any other. */
export function refusalAt(record: MemoryColumns, position: number): number | null {
  for (let row = record.oom_event.length - 1; row >= 0; row -= 1)
    if (record.oom_event[row] === position - 1) return row;
  return null;
}

/** Live blocks that stand in the way of a refused request, the largest first. */
export function obstaclesOf(record: MemoryColumns, row: number | null): number[] {
  const found: number[] = [];
  for (let at = 0; at < record.obstacle_oom.length; at += 1)
    if (record.obstacle_oom[at] === row) found.push(record.obstacle_block[at] ?? 0);
  const size = (block: number): number => record.block_bytes[block] ?? 0;
  return found.sort((a, b) => size(b) - size(a));
}

/** The refused request that a recording ends with: nothing was allocated after it. */
export function lastRefusal(record: MemoryColumns): number | null {
  const row = record.oom_event.length - 1;
  if (row < 0) return null;
  for (let event = record.event_kind.length - 1; event > (record.oom_event[row] ?? 0); event -= 1)
    if (record.event_kind[event] === KIND.alloc) return null;
  return row;
}

/** The phase a request was refused in: one that a refusal ends has no event after it. */
export function refusedIn(record: MemoryColumns, row: number): string {
  const event = record.oom_event[row] ?? 0;
  return phaseAt(record, event) || phaseAt(record, event - 1);
}

/** `RTX 4090`, or `a 700 MiB GPU` where the size is all that it is called by. */
function gpuName({ card }: MemoryColumns): string {
  const name = shorten(card, 40);
  if (!/^\d/.test(name)) return name;
  return `${/^(8|1[18]\b)/.test(name) ? 'an' : 'a'} ${name} GPU`;
}

/** `Out of memory in backward: 40.0 MiB requested, the largest free block has 22.0 MiB.` */
export function refusalSentence(record: MemoryColumns, row: number): string {
  const phase = refusedIn(record, row);
  const where = phase ? ` in ${shorten(phase, 60)}` : '';
  const gpu = record.card ? ` on ${gpuName(record)}` : '';
  const largest = record.oom_largest[row] ?? -1;
  const free = record.oom_free[row] ?? -1;
  const left = [
    free < 0 ? '' : `${formatBytes(free)} free on the device`,
    largest < 0 ? '' : `${formatBytes(largest)} in the largest free block`,
  ].filter(Boolean);
  const had = left.length > 0 ? `; ${left.join(', ')}` : '';
  return `Out of memory${where}${gpu}: ${formatBytes(record.oom_bytes[row] ?? 0)} requested${had}.`;
}
