/**
 * What is sent for the row "What if?", and what comes back
 * (`workbench/memory/simulation/questions.py`).
 */
import { formatCount } from '../graph/format';
import type { MemoryColumns } from '../memory/series';
import { settingParts, settingsOf } from '../memory/settings';

/** What a person has chosen; null: no limit, off, or as recorded. */
export interface Choice {
  /** Name of a GPU, or its bytes. */
  card: string | number | null;
  /** MiB. */
  split: number | null;
  expandable: boolean;
  collect: number | null;
  divisions: number | null;
  batch: number | null;
  /** Settings that have no control here, as they were recorded. */
  rest: string;
}

export interface RequestedRow {
  settings: string;
  card: string | number | null;
  batch: number | null;
  empty_before: string;
}

export interface NamedRow {
  name: string;
  request: RequestedRow;
  /** What the controls would have to say for this row; null where they cannot. */
  choice: Choice | null;
}

export type Basis = 'recorded' | 'certified' | 'uncertified';

export interface Row extends RequestedRow {
  peak_bytes: number;
  peak_low: number;
  peak_high: number;
  fits: boolean;
  /** The recording ends with a refused request, and this is served it: what follows is not known. */
  got_past?: boolean;
  usable_bytes: number;
  num_retries: number;
  failed_event: number;
  basis: Basis;
  sentence: string;
  error: string;
}

export interface Answer {
  rows: Row[];
  smallest: { card: string; peak_bytes: number; is_lower_bound?: boolean } | null;
}

export interface Gpu {
  name: string;
  total_bytes: number;
  usable_bytes: number;
  source: string;
}

/** The choice that changes nothing but the GPU. */
export function choiceOf(record: MemoryColumns, card: Choice['card']): Choice {
  const parts = settingParts(settingsOf(record));
  const known = new Map(parts);
  const take = (key: string): string | undefined => {
    const value = known.get(key);
    if (value !== undefined && !value.startsWith('[')) known.delete(key);
    return value?.startsWith('[') ? undefined : value;
  };
  const number = (key: string): number | null => {
    const value = take(key);
    return value === undefined ? null : Number(value);
  };
  return {
    card,
    split: number('max_split_size_mb'),
    expandable: take('expandable_segments') === 'True',
    collect: number('garbage_collection_threshold'),
    divisions: number('roundup_power2_divisions'),
    batch: null,
    rest: [...known].map((pair) => pair.join(':')).join(','),
  };
}

/** As in `PYTORCH_CUDA_ALLOC_CONF`. */
export function wordsOf(choice: Choice): string {
  const parts = [choice.rest];
  if (choice.split !== null) parts.push(`max_split_size_mb:${choice.split}`);
  if (choice.expandable) parts.push('expandable_segments:True');
  if (choice.collect !== null && choice.card !== null)
    parts.push(`garbage_collection_threshold:${choice.collect}`);
  if (choice.divisions !== null) parts.push(`roundup_power2_divisions:${choice.divisions}`);
  return parts.filter(Boolean).join(',');
}

function requestOf(choice: Choice, emptyBefore = ''): RequestedRow {
  const { card, batch } = choice;
  return { settings: wordsOf(choice), card, batch, empty_before: emptyBefore };
}

/** The phase of the optimizer's step, if the recording names it. */
export function stepOf(record: MemoryColumns): string {
  return record.phases.find(({ name }) => /optim/i.test(name))?.name ?? '';
}

const alike = (a: RequestedRow, b: RequestedRow): boolean =>
  JSON.stringify(a) === JSON.stringify(b);

/** How a choice differs from the recording, in words; empty where it does not. */
export function nameOf(choice: Choice, recorded: Choice): string {
  const parts: string[] = [];
  const differs = (key: keyof Choice): boolean => choice[key] !== recorded[key];
  if (differs('batch')) parts.push(`batch ${formatCount(choice.batch ?? 0)}`);
  if (differs('expandable')) parts.push(choice.expandable ? 'expandable' : 'not expandable');
  if (differs('split'))
    parts.push(choice.split === null ? 'no split limit' : `split ${choice.split} MiB`);
  if (differs('collect'))
    parts.push(choice.collect === null ? 'no collection' : `collect ${choice.collect}`);
  if (differs('divisions'))
    parts.push(choice.divisions === null ? 'no divisions' : `divisions ${choice.divisions}`);
  const text = parts.join(', ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The recording, the usual questions and, if it is none of these, the chosen one; which is that. */
export function rowsOf(
  record: MemoryColumns,
  choice: Choice,
): { rows: NamedRow[]; chosen: number } {
  const recorded = choiceOf(record, choice.card);
  const row = (name: string, changed: Partial<Choice>): NamedRow => {
    const own = { ...recorded, ...changed };
    return { name, request: requestOf(own), choice: own };
  };
  const usual = [row(record.is_predicted ? 'As predicted' : 'As recorded', {})];
  const step = stepOf(record);
  if (step)
    usual.push({
      name: 'empty_cache() before step()',
      request: requestOf(recorded, step),
      choice: null,
    });
  if (!recorded.expandable) usual.push(row('expandable_segments', { expandable: true }));
  else usual.push(row('no expandable_segments', { expandable: false }));
  if (recorded.split !== 128) usual.push(row('max_split_size 128 MiB', { split: 128 }));
  if (choice.batch !== null && choice.batch !== record.batch_size)
    usual.push(row(`Batch ${formatCount(choice.batch)}`, { batch: choice.batch }));
  const chosen = { name: nameOf(choice, recorded), request: requestOf(choice), choice };
  const same = usual.findIndex(({ request }) => alike(request, chosen.request));
  return same >= 0
    ? { rows: usual, chosen: same }
    : { rows: [...usual, chosen], chosen: usual.length };
}

/** Refuses what is no answer to a question about so many rows. */
export function readAnswer(answer: object, count: number): Answer {
  const { rows, smallest } = answer as Partial<Answer>;
  if (!Array.isArray(rows) || rows.length !== count)
    throw new Error('The answer is of another version: reload the page and restart the kernel.');
  return { rows, smallest: smallest ?? null };
}

/** Batches a person may want: those of a few bits, from an eighth to eight times the recorded. */
export function batchesOf(recorded: number): number[] {
  const found = new Set([1, 2, 3, recorded]);
  for (let unit = 1; unit <= 2 * recorded; unit *= 2)
    for (let times = 4; times < 8; times += 1) found.add(times * unit);
  return [...found]
    .filter((batch) => 8 * batch >= recorded && batch <= 8 * recorded)
    .sort((a, b) => a - b);
}
