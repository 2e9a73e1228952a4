/** A compile record as the view reads it: what went wrong, and the pieces that were compiled. */
import type {
  CompiledKernel,
  CompileRecord,
  GraphBreak,
  Recompile,
  SourceLine,
} from '@torch-workbench/records';
import { placeLabel } from './words';

/** What a person may want to change: a break, code that was given up, or a recompile. */
export interface Finding {
  readonly kind: 'break' | 'given up' | 'recompile';
  readonly region: number;
  /** The line to go to; null where none of the user's is known. */
  readonly source: SourceLine | null;
  /** How many compilations met it. */
  readonly count: number;
  readonly title: string;
  readonly explanation: string;
  /** What may be done, cheapest first. */
  readonly hints: readonly string[];
  /** A page about it; empty for none. */
  readonly link: string;
  /** The condition that failed, as Dynamo writes it. */
  readonly guard: string;
  /** What a filter is matched with, in lower case. */
  readonly text: string;
}

/** One row of the table `compilation`: a piece of code, compiled for one set of guards. */
export interface Piece {
  readonly row: number;
  readonly region: number;
  readonly name: string;
  readonly variant: number;
  readonly source: SourceLine | null;
  readonly operations: number;
  readonly guards: number;
  /** By phase, in the order of `PHASES`. */
  readonly seconds: readonly number[];
  readonly hits: number;
  readonly lookups: number;
  /** Of one forward and of one backward; -1 where no code is known. */
  readonly launches: readonly [number, number];
  /** Rows of `record.kernels`. */
  readonly kernels: readonly number[];
  readonly error: string;
  readonly text: string;
}

/** A cache on disk: how often it had what was looked for. */
export interface Cache {
  readonly name: string;
  readonly hits: number;
  readonly lookups: number;
}

export class Report {
  readonly findings: readonly Finding[];
  readonly pieces: readonly Piece[];
  readonly caches: readonly Cache[];
  /** All of the time, by phase. */
  readonly seconds: readonly number[];
  readonly numGraphs: number;

  constructor(readonly record: CompileRecord) {
    this.pieces = piecesOf(record);
    this.findings = findingsOf(record, this.pieces);
    this.caches = cachesOf(record);
    this.seconds = columnsOf(record).map(sum);
    this.numGraphs = record.regions.reduce((all, region) => all + region.num_graphs, 0);
  }

  get totalSeconds(): number {
    return this.seconds.reduce((all, one) => all + one, 0);
  }

  /** Whether there is nothing to show but that nothing was compiled. */
  get isEmpty(): boolean {
    return this.record.regions.length === 0;
  }

  kernel(row: number): CompiledKernel | null {
    return this.record.kernels[row] ?? null;
  }

  regionLabel(row: number): string {
    return this.record.regions[row]?.label ?? '';
  }

  source(row: number): SourceLine | null {
    return this.record.sources[row] ?? null;
  }
}

/** The time columns, in the order of `PHASES`. */
function columnsOf(record: CompileRecord): readonly Float64Array[] {
  return [
    record.compilation_dynamo_s,
    record.compilation_autograd_s,
    record.compilation_inductor_s,
    record.compilation_compiler_s,
  ];
}

function piecesOf(record: CompileRecord): Piece[] {
  const kernels = Array.from(record.compilation_region, (): number[] => []);
  record.kernels.forEach(({ compilation }, row) => kernels[compilation]?.push(row));
  const columns = columnsOf(record);
  return Array.from(record.compilation_region, (region, row) => {
    const at = (column: Int32Array): number => column[row] ?? 0;
    const name = record.strings[at(record.compilation_name)] ?? '';
    const hits = at(record.compilation_autograd_hits) + at(record.compilation_fx_hits);
    const misses = at(record.compilation_autograd_misses) + at(record.compilation_fx_misses);
    const own = kernels[row] ?? [];
    const named = own.map((kernel) => kernelText(record.kernels[kernel]));
    const label = record.regions[region]?.label ?? '';
    return {
      row,
      region,
      name,
      variant: at(record.compilation_variant),
      source: record.sources[at(record.compilation_source)] ?? null,
      operations: at(record.compilation_operations),
      guards: at(record.compilation_guards),
      seconds: columns.map((column) => column[row] ?? 0),
      hits,
      lookups: hits + misses,
      launches: [
        at(record.compilation_forward_launches),
        at(record.compilation_backward_launches),
      ] as const,
      kernels: own,
      error: record.strings[at(record.compilation_error)] ?? '',
      text: [label, name, ...named].join('\n').toLowerCase(),
    };
  });
}

/** What a filter may name of a kernel. */
export function kernelText(kernel: CompiledKernel | undefined): string {
  return kernel ? [kernel.name, ...kernel.operations].join(' ').toLowerCase() : '';
}

function findingsOf(record: CompileRecord, pieces: readonly Piece[]): Finding[] {
  const breaks = record.breaks.map((one) => breakFinding(record, one));
  const again = recompiles(record, pieces);
  return [...breaks, ...again].map((one) => ({ ...one, text: textOf(record, one) }));
}

function breakFinding(record: CompileRecord, one: GraphBreak): Finding {
  return {
    kind: one.skipped ? 'given up' : 'break',
    region: one.region,
    source: record.sources[one.source] ?? null,
    count: one.count,
    title: one.reason,
    explanation: one.explanation,
    hints: one.hints,
    link: /^https?:\/\//.test(one.link) ? one.link : '',
    guard: '',
    text: '',
  };
}

/** A region that breaks is compiled in pieces, each of which is compiled again for one change. */
function recompiles(record: CompileRecord, pieces: readonly Piece[]): Finding[] {
  const found = new Map<string, { one: Recompile; piece: Piece; count: number }>();
  for (const one of record.recompiles) {
    const piece = pieces[one.compilation];
    if (!piece) continue;
    const key = [piece.region, one.source, one.words].join('\n');
    const { count = 0, one: first = one, piece: at = piece } = found.get(key) ?? {};
    found.set(key, { one: first, piece: at, count: count + 1 });
  }
  return [...found.values()].map(({ one, piece, count }) => ({
    kind: 'recompile',
    region: piece.region,
    // Where Dynamo knows no line of the condition, what was compiled again is one.
    source: record.sources[one.source] ?? piece.source,
    count,
    title: one.words,
    explanation: '',
    hints: one.remedy ? [one.remedy] : [],
    link: '',
    guard: one.guard,
    text: '',
  }));
}

function textOf(record: CompileRecord, one: Finding): string {
  const region = record.regions[one.region]?.label ?? '';
  const place = one.source ? [placeLabel(one.source), one.source.text] : [];
  const all = [one.kind, one.title, one.explanation, one.guard, region, ...place, ...one.hints];
  return all.join('\n').toLowerCase();
}

function cachesOf(record: CompileRecord): Cache[] {
  const of = (name: string, hits: Int32Array, misses: Int32Array): Cache => {
    const found = sum(hits);
    return { name, hits: found, lookups: found + sum(misses) };
  };
  return [
    of('AOTAutograd', record.compilation_autograd_hits, record.compilation_autograd_misses),
    of('FX graphs', record.compilation_fx_hits, record.compilation_fx_misses),
  ].filter(({ lookups }) => lookups > 0);
}

function sum(column: Float64Array | Int32Array): number {
  let all = 0;
  for (const value of column) all += value;
  return all;
}
