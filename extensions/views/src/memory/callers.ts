/** What a record knows of the code that allocated its memory. */
import type { MemoryColumns } from './series';

/** Whether there is a stack or a module to show. */
export function hasFlame(record: MemoryColumns): boolean {
  return record.call_parent.length > 0 || hasModules(record);
}

export function hasModules(record: MemoryColumns): boolean {
  for (let block = 0; block < record.block_module.length; block += 1)
    if (record.strings[record.block_module[block] ?? 0]) return true;
  return false;
}
