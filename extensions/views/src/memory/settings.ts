/** The allocator's settings, as in `PYTORCH_CUDA_ALLOC_CONF`. */
import type { MemoryColumns } from './series';

/** What it was recorded or simulated under; empty for the defaults, or where it is not recorded. */
export function settingsOf(record: MemoryColumns): string {
  // A record saved when only certificates said them has them there.
  const certified = record.is_predicted ? '' : (record.certificate?.settings ?? '');
  const said = record.settings || certified;
  return said === 'default' ? '' : said;
}

/** `key:value` parts of settings; a value in brackets may hold commas. */
export function settingParts(settings: string): [string, string][] {
  const parts = settings.match(/[^,[]+(?:\[[^\]]*\])?/g) ?? [];
  return parts.flatMap((part): [string, string][] => {
    const colon = part.indexOf(':');
    return colon < 0 ? [] : [[part.slice(0, colon).trim(), part.slice(colon + 1).trim()]];
  });
}
